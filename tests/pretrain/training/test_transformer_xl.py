"""Transformer-XL in training: its memory on meshes, with micro-batches, after a kill, and in
evaluation.
"""

import dataclasses

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from models import build
from models.config.transformer_xl import Clusters, TransformerXLConfig
from pretrain.config import AdamW, Checkpoint, Evaluate, Mesh, Run, Train
from pretrain.mesh.sharding import make_mesh
from pretrain.training.evaluation import make_evaluator
from pretrain.training.losses import find_loss
from tests.pretrain.training.recurrent_runs import check_killed_run, run_steps

LENGTH, ROWS, STEPS = 6, 8, 12


@pytest.fixture(scope="module")
def run(stores):
    objective = CausalLm(length=LENGTH, order="lanes", separate_documents=True)
    return Run(
        model=TransformerXLConfig(
            vocab=256,
            width=16,
            depth=2,
            num_heads=2,
            head_width=4,
            mlp=32,
            dropout=0.1,
            memory=9,
            clusters=Clusters((32, 64), 2),
        ),
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
    memory = state.variables["segment_memory"]
    assert memory["is_readable"].any() and not memory["is_readable"].all()
    states = memory["decoder"]["layers"]["attention"]["states"]
    assert states.shape == (ROWS, 2, 9, 16) and np.abs(states).max() > 0.1
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


def test_an_evaluation_with_memory_is_that_of_long_rows(run, stores, alone):
    """One lane of segments scores as one row of the whole text, document by document."""
    model = dataclasses.replace(run.model, memory=2_000)
    data = dataclasses.replace(run.data, batch_size=1)
    held = Stream(stores["t5"], data, split="heldout")
    mesh, rng = make_mesh(Mesh(data=1), jax.devices()[:1]), np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: 0.3 * rng.standard_normal(leaf.shape, np.float32), alone.params
    )
    loss = find_loss("causal_lm")
    with jax.set_mesh(mesh):
        module = build(model)
        evaluate = make_evaluator(module, loss, mesh, compute_dtype="float32")
        found = evaluate(params, held)
        shuffled = dataclasses.replace(data, objective=CausalLm(length=LENGTH))
        cut = evaluate(params, Stream(stores["t5"], shuffled, split="heldout"))
    whole = held.table.whole_S[0] * LENGTH
    objective = CausalLm(length=int(whole), order="lanes", separate_documents=True)
    rows = Stream(stores["t5"], Data(objective=objective, batch_size=1), split="heldout")
    batch = rows.build(np.zeros(1, int), None)
    sum_batch = jax.jit(lambda params, batch: loss.sum_batch(module, params, batch))
    sums = sum_batch(params, batch)
    short = held.build(np.array([held.num_rows - 1]), None)
    own = held.table.mark_own_tokens(np.array([held.num_rows - 1]))[:, 1:]
    rest = 0.0
    if held.num_rows > held.table.whole_S[0]:  # it was moved back, and reads no memory
        short["label_weights"] = own.astype(np.float32)
        rest = float(sum_batch(params, short)["causal_lm"])
    expected = (float(sums["causal_lm"]) + rest) / found["targets"]
    assert abs(found["loss"] - expected) < 1e-4 < 1e-3 < abs(found["loss"] - cut["loss"])


@pytest.mark.more
def test_a_run_that_is_killed_ends_with_the_same_bits(run, tmp_path):
    check_killed_run(run, tmp_path)
