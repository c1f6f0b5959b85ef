"""An LSTM in training: its state on lanes. Meshes and kills: test_meshes_and_kills.py."""

import dataclasses

import jax
import numpy as np
import pytest

from data.objectives import CausalLm
from data.pipeline import Stream
from models import build
from models.config.lstm_lm import LstmLmConfig
from pretrain.training.losses import find_loss
from tests.pretrain.training.recurrent_runs import make_run, run_steps

ROWS = 8


@pytest.fixture(scope="module")
def run(stores):
    model = LstmLmConfig(vocab=256, width=16, depth=2, dropout=0.1)
    objective = CausalLm(length=6, order="lanes", separate_documents=True)
    return make_run(model, objective, stores["t5"].path)


@pytest.fixture(scope="module")
def stream(run, stores):
    return Stream(stores["t5"], run.data, seed=0)


def test_rows_on_a_lane_are_one_long_row(run, stream):
    """Four batches equal the rows that they join to, document by document."""
    model, loss = build(run.model), find_loss("causal_lm")
    shapes = jax.eval_shape(model.init, jax.random.key(0), np.zeros((ROWS, 2), np.int32))
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: random.standard_normal(leaf.shape, np.float32) * 0.3, shapes["params"]
    )
    variables, found, batches = {}, [], [stream.build_batch(step) for step in range(4)]
    apply_states = jax.jit(
        lambda batch, variables: loss.apply_states(model, params, batch, variables=variables)
    )
    for batch in batches:
        states, variables = apply_states(batch, variables)
        found.append(np.asarray(states))
    # A document of a row is not in the rows before, unless it continues.
    ids, offset = [], np.zeros(ROWS, np.int32)
    for batch in batches:
        offset += (~batch["is_continued"]).astype(np.int32)
        ids.append(offset[:, None] + batch["segment_ids"])
        offset = ids[-1][:, -1] - 1
    joined = {
        "token_ids": np.concatenate([batch["token_ids"] for batch in batches], axis=1),
        "segment_ids": np.concatenate(ids, axis=1),
    }
    expected = jax.jit(
        lambda joined: model.apply({"params": params}, **joined, method="compute_states")
    )(joined)
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=2e-6)
    assert sum(batch["is_continued"].sum() for batch in batches) > ROWS
    assert joined["segment_ids"].max() > 2


def test_half_precision_keeps_the_state_in_float32(run, stream):
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, compute_dtype="bfloat16"))
    state = run_steps(run, stream, count=1)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.variables)} == {np.dtype("float32")}
