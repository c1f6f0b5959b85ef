"""A run on a GPU that is killed and started again ends with the bits of one that was not."""

import pytest

from data.config import Data
from data.objectives import CausalLm, MaskedLm
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from tests.pretrain.training.recurrent_runs import check_killed_run

SIZES = dict(vocab=256, length=128, width=128, depth=2, num_heads=2, mlp=512, attention_dropout=0.0)
MODELS = {
    "bert": (BertConfig(**SIZES), MaskedLm(length=128, max_predictions=20, rows="packed"), "bert"),
    "gpt2": (Gpt2Config(**SIZES), CausalLm(length=128), "t5"),
}


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("gpu")
def test_a_run_that_is_killed_ends_with_the_same_bits(name, compute, stores, tmp_path, monkeypatch):
    """Each process compiles, as on another machine."""
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
    model, objective, store = MODELS[name]
    run = Run(
        model=model,
        data=Data(objective=objective, store=str(stores[store].path), batch_size=64),
        optimizer=AdamW(learning_rate=1e-3, warmup_steps=2),
        train=Train(steps=12, compute_dtype=compute),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )
    check_killed_run(run, tmp_path)
