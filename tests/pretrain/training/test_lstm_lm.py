"""An LSTM in training: its state on meshes, with micro-batches, after a kill, and in evaluation."""

import dataclasses

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from models import build
from models.config.lstm_lm import LstmLmConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Run, Train
from pretrain.training.losses import find_loss
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps

LENGTH, ROWS, STEPS = 6, 8, 12


@pytest.fixture(scope="module")
def run(stores):
    objective = CausalLm(length=LENGTH, order="lanes", separate_documents=True)
    return Run(
        model=LstmLmConfig(vocab=256, width=16, depth=2, dropout=0.1),
        data=Data(objective=objective, store=str(stores["t5"].path), batch_size=ROWS),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=STEPS, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=0),
        checkpoint=Checkpoint(every=4, keep=10),
    )


@pytest.fixture(scope="module")
def stream(run, stores):
    return Stream(stores["t5"], run.data, seed=0)


@pytest.fixture(scope="module")
def alone(run, stream):
    state = run_steps(run, stream)
    layers = state.variables["carry"]["decoder"]["layers"]
    assert layers["cells"].shape == layers["output"].shape == (ROWS, 2, 16)
    assert np.abs(layers["cells"]).max() > 0.01
    return state


@pytest.mark.more
@pytest.mark.parametrize(
    ("mesh", "microbatches"),
    [({"data": 8}, 1), ({"data": 2, "fsdp": 2, "model": 2}, 1), (None, 4)],
    ids=str,
)
def test_meshes_and_micro_batches_keep_the_same(run, stream, alone, mesh, microbatches):
    found = run_steps(run, stream, mesh, microbatches)
    leaves = jax.tree.leaves((alone.params, alone.variables))
    for a, b in zip(leaves, jax.tree.leaves((found.params, found.variables)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5, rtol=0)


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


@pytest.mark.more
def test_a_run_that_is_killed_ends_with_the_same_bits(run, tmp_path):
    check_killed_run(run, tmp_path)


def test_half_precision_keeps_the_state_in_float32(run, stream):
    run = dataclasses.replace(run, train=dataclasses.replace(run.train, compute_dtype="bfloat16"))
    state = run_steps(run, stream, count=1)
    assert {leaf.dtype for leaf in jax.tree.leaves(state.variables)} == {np.dtype("float32")}
