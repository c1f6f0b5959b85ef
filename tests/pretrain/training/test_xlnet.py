"""XLNet in training: both streams and the memory on meshes, with micro-batches, and after a kill."""

import dataclasses

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import PermutationLm
from data.pipeline import Stream
from models.config.xlnet import XLNetConfig
from pretrain.config import AdamW, Checkpoint, ConfigError, Evaluate, Run, Train, load
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps

ROWS, STEPS = 8, 12


@pytest.fixture(scope="module")
def run(stores):
    return Run(
        model=XLNetConfig(
            vocab=256,
            width=16,
            depth=2,
            num_heads=2,
            mlp=32,
            dropout=0.1,
            attention_dropout=0.0,
            memory=9,
        ),
        data=Data(
            objective=PermutationLm(length=12, partial=3, rows="windows", order="lanes"),
            store=str(stores["bert"].path),
            batch_size=ROWS,
        ),
        optimizer=AdamW(learning_rate=1e-2, warmup_steps=2, epsilon=1e-4),
        train=Train(steps=STEPS, compute_dtype="float32"),
        evaluate=Evaluate(every=6, samples=1),
        checkpoint=Checkpoint(every=4, keep=10),
    )


@pytest.fixture(scope="module")
def stream(run, stores):
    return Stream(stores["bert"], run.data, seed=0)


@pytest.fixture(scope="module")
def alone(run, stream):
    state = run_steps(run, stream)
    states = state.variables["segment_memory"]["encoder"]["layers"]["attention"]["states"]
    assert states.shape == (ROWS, 2, 9, 16) and np.abs(states).max() > 0.1
    return state


@pytest.mark.parametrize(
    ("mesh", "microbatches"),
    [({"data": 2, "fsdp": 2, "model": 2}, 1), (None, 4)],
    ids=str,
)
def test_meshes_and_micro_batches_keep_the_same(run, stream, alone, mesh, microbatches):
    found = run_steps(run, stream, mesh, microbatches)
    leaves = jax.tree.leaves((alone.params, alone.variables))
    for a, b in zip(leaves, jax.tree.leaves((found.params, found.variables)), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5, rtol=0)


def test_a_run_that_is_killed_ends_with_the_same_bits(run, tmp_path):
    check_killed_run(run, tmp_path)


def test_lanes_need_a_memory():
    with pytest.raises(ConfigError, match="order=lanes is for models that carry a state"):
        load("xlnet_tiny", ["data.objective.order=lanes"])
    run = load("xlnet_tiny", ["model.memory=32", "data.objective.order=lanes"])
    assert run.model == dataclasses.replace(run.model, memory=32)
