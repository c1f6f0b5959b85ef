"""Fixtures of the workdir tests."""

import pytest


@pytest.fixture(scope="module")
def module_run():
    from data.config import Data
    from data.objectives import MaskedLm
    from models.config.bert import BertConfig
    from pretrain.config import AdamW, Run, Train

    model = BertConfig(vocab=128, length=32, width=32, depth=2, num_heads=8, mlp=64)
    return Run(
        model,
        Data(objective=MaskedLm(length=32, max_predictions=6, rows="documents")),
        AdamW(),
        Train(steps=10, compute_dtype="float32"),
    )
