"""Articles as fields in training: the loss is the equations'."""

import jax
import numpy as np
import pytest

from data.objectives import PartitionedFields
from data.pipeline import Stream
from models import build
from models.config.gpt2 import Gpt2Config
from pretrain.api.importing import make_initializer
from pretrain.training.losses.partitioned_fields import LOSS
from tests.article_store import prepare_articles
from tests.pretrain.training.recurrent_runs import make_run


def test_the_loss_is_that_of_all_fields_and_not_of_padding(tmp_path):
    """Sums of -log p(next token) over the tokens of the fields, by NumPy from the logits."""
    store = prepare_articles(tmp_path)
    model = Gpt2Config(vocab=312, length=64, width=32, depth=2, num_heads=8, mlp=64)
    run = make_run(model, PartitionedFields(length=40), store.path)
    batch = Stream(store, run.data).build_batch(0)
    model, params = build(run.model), jax.jit(make_initializer(run))()

    @jax.jit
    def compute(params, batch):
        logits_BLV = model.apply({"params": params}, batch["token_ids"])
        return LOSS.sum_batch(model, params, batch), logits_BLV

    sums, logits_BLV = compute(params, batch)
    logits_BLV = np.asarray(logits_BLV, np.float64)
    log_BLV = logits_BLV - np.log(np.exp(logits_BLV).sum(axis=-1, keepdims=True))
    expected = 0.0
    for i, j in np.argwhere(batch["label_weights"] > 0):
        expected -= log_BLV[i, j, batch["labels"][i, j]]
    assert 0 < batch["label_weights"].sum() < batch["label_weights"].size
    assert float(sums["partitioned_fields"]) == pytest.approx(expected, rel=1e-5)
