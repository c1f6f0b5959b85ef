"""Training steps on a GPU: the parameters of the CPU, and the same bits whenever they are run."""

import contextlib
import dataclasses
import functools

import jax
import numpy as np
import pytest

from data.objectives import CausalLm, MaskedLm, SpanCorruption
from models import build
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from models.config.t5 import T5Config
from pretrain.config import Mesh
from pretrain.mesh.sharding import format_path, make_mesh
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.program import make_program
from pretrain.training.state import init_state
from tests.pretrain.conftest import RUNS, make_tiny_run

STEPS = 3
# As in tests/pretrain/training/test_step.py: with Adam's usual epsilon, gradients that are rounding
# noise would move a parameter.
EPSILON, TOLERANCE = 1e-4, 2e-5
LARGE = dict(vocab=512, width=256, depth=2, num_heads=4, mlp=1024, dropout=0.1)
# Few words and many positions: many positions add to the same row of the table at once.
REPEATED = {
    "bert": make_tiny_run(
        BertConfig(**LARGE, length=256, attention_dropout=0.0),
        MaskedLm(length=256, max_predictions=38, rows="documents"),
    ),
    "t5": make_tiny_run(T5Config(**LARGE, decoder_depth=2), SpanCorruption(inputs=256)),
    "gpt2": make_tiny_run(
        Gpt2Config(**LARGE, length=256, attention_dropout=0.0), CausalLm(length=256)
    ),
    # Two equal calls of cuDNN's attention: XLA finds the kernel of the first one only, unless
    # their scales differ.
    "gpt2_unrolled": make_tiny_run(
        Gpt2Config(**LARGE, length=256, attention_dropout=0.0, scan=False), CausalLm(length=256)
    ),
}


def run_steps(run, batches, device, state=None):
    """Return (first state, last state), on the host, of steps on one device."""
    mesh = make_mesh(Mesh(1), [device])
    with jax.set_mesh(mesh), jax.default_device(device):
        program = make_program(run, mesh)
        if state is None:
            state = program.init()
        first = jax.device_get(state)
        state = jax.device_put(first, program.state_shardings)
        for batch in batches:
            placed = {key: program.batch[key].sharding for key in batch}
            state, metrics = program.train_step(state, jax.device_put(batch, placed))
            assert not int(metrics["skipped"])
        return first, jax.device_get(state)


def separate_positions(batch):
    """Return a batch whose rows have each masked position once, as every objective's."""
    if "masked_positions" not in batch:
        return batch
    B, P = batch["masked_positions"].shape
    rng, last = np.random.default_rng(0), int(batch["masked_positions"].max()) + 1
    positions = [np.sort(rng.permutation(max(last, P))[:P]) for _ in range(B)]
    return batch | {"masked_positions": np.array(positions, batch["masked_positions"].dtype)}


@contextlib.contextmanager
def compile_anew():
    """Compile what is compiled, as another process without a cache would."""
    jax.clear_caches()
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", True)


@pytest.mark.parametrize("name", RUNS)
def test_parameters_are_those_of_the_cpu(gpu, random_batch, name):
    run = RUNS[name]
    if hasattr(run.optimizer, "epsilon"):
        optimizer = dataclasses.replace(run.optimizer, epsilon=EPSILON)
        run = dataclasses.replace(run, optimizer=optimizer)
    batches = [separate_positions(random_batch(run, seed)) for seed in range(STEPS)]
    with jax.default_matmul_precision("highest"):
        first, expected = run_steps(run, batches, jax.devices("cpu")[0])
        _, found = run_steps(run, batches, gpu, first)
    paths = jax.tree_util.tree_leaves_with_path(expected.params)
    for (keys, a), b in zip(paths, jax.tree.leaves(found.params), strict=True):
        if not format_path(keys).endswith("key/bias"):  # its true gradient is 0
            np.testing.assert_allclose(b, a, atol=TOLERANCE, err_msg=format_path(keys))


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", REPEATED)
def test_steps_have_the_same_bits_each_time(gpu, random_batch, name, compute):
    """So that a run that was killed ends as if it had not been."""
    train = dataclasses.replace(REPEATED[name].train, compute_dtype=compute)
    run = dataclasses.replace(REPEATED[name], train=train)
    batches = [random_batch(run, seed) for seed in range(STEPS)]
    ends = []
    for _ in range(3):
        with compile_anew():
            ends.append(run_steps(run, batches, gpu)[1])
    for other in ends[1:]:
        same = jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), ends[0], other)
        assert jax.tree.all(same), jax.tree_util.tree_leaves_with_path(same)


def test_the_kernel_for_threefry_draws_the_same_parameters(gpu):
    run, mesh = REPEATED["gpt2_unrolled"], make_mesh(Mesh(1), [gpu])
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        plain = functools.partial(
            init_state,
            build(run.model),
            run.data.objective,
            make_run_optimizer(run),
            run.train.seed,
            run.data.batch_size,
        )
        expected = jax.jit(plain, out_shardings=program.state_shardings)()
        jax.tree.map(np.testing.assert_array_equal, program.init(), expected)


def test_bfloat16_learns_as_float32(gpu, random_batch):
    """The loss of each of 30 steps is float32's within 2**-8, the distance of bfloat16's numbers.

    The task is to copy the words at the masked positions, at a learning rate at which the loss
    falls in each step: a loss that oscillates about its lowest value differs by its phase.
    """
    learned = REPEATED["bert"]
    batch = separate_positions(random_batch(learned))
    batch["labels"] = np.take_along_axis(batch["token_ids"], batch["masked_positions"], axis=1)
    losses = {}
    for compute in ("float32", "bfloat16"):
        run = dataclasses.replace(
            learned,
            train=dataclasses.replace(learned.train, compute_dtype=compute, steps=30),
            optimizer=dataclasses.replace(learned.optimizer, learning_rate=1e-3),
        )
        mesh = make_mesh(Mesh(1), [gpu])
        with jax.set_mesh(mesh):
            program = make_program(run, mesh)
            state = program.init()
            placed = jax.device_put(batch, {key: program.batch[key].sharding for key in batch})
            losses[compute] = []
            for _ in range(30):
                state, metrics = program.train_step(state, placed)
                losses[compute].append(float(metrics["loss"]))
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=2**-8)
    assert np.all(np.diff(losses["float32"]) < 0) and losses["float32"][-1] < 1
