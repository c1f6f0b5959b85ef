"""Articles as fields in training: the loss is the equations', a mesh trains the same
parameters as one device, and a run that is killed ends with the same bits.
"""

import dataclasses

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import PartitionedFields
from data.pipeline import Stream
from models import build
from models.config.gpt2 import Gpt2Config
from pretrain.api.importing import make_initializer
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from pretrain.training.losses.partitioned_fields import LOSS
from tests.article_store import prepare_articles
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return prepare_articles(tmp_path_factory.mktemp("articles"))


@pytest.fixture(scope="module")
def run(store):
    return Run(
        model=Gpt2Config(vocab=312, length=64, width=32, depth=2, num_heads=8, mlp=64, dropout=0.1),
        data=Data(objective=PartitionedFields(length=40), store=str(store.path), batch_size=8),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=12, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )


def test_the_loss_is_that_of_all_fields_and_not_of_padding(run, store):
    """Sums of -log p(next token) over the tokens of the fields, by NumPy from the logits."""
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


@pytest.fixture(scope="module")
def plain(run):
    return dataclasses.replace(run, model=dataclasses.replace(run.model, attention_dropout=0.0))


@pytest.fixture(scope="module")
def alone(plain, store):
    return run_steps(plain, Stream(store, plain.data))


@pytest.mark.more
@pytest.mark.parametrize("mesh", [{"data": 8}, {"data": 2, "fsdp": 2, "model": 2}])
def test_a_mesh_trains_the_same_parameters(plain, store, alone, mesh):
    spread = run_steps(plain, Stream(store, plain.data), mesh)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), alone.params, spread.params
    )


@pytest.mark.more
def test_a_run_that_is_killed_ends_with_the_same_bits(run, tmp_path):
    check_killed_run(run, tmp_path)
