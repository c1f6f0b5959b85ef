"""Memory of a step on a CPU besides its state, by XLA's buffer assignment."""

import gc

import jax
import pytest

from data.config import Data
from data.objectives import CausalLm, MaskedLm
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from pretrain.config import AdamW, Mesh, Run, Train
from pretrain.mesh.sharding import make_mesh
from pretrain.training.program import make_program


@pytest.mark.slow
def test_a_step_copies_no_moments():
    """Nearly all of this model is two kernels, whose moments have the same size: activations are
    negligible.
    """
    model = Gpt2Config(vocab=256, length=8, width=128, depth=1, num_heads=2, mlp=8192, scan=False)
    data = Data(objective=CausalLm(length=8), store="none", batch_size=1)
    program = make_program(
        Run(model, data, optimizer=AdamW(), train=Train(steps=2)),
        make_mesh(Mesh(1), jax.devices()[:1]),
    )
    size = sum(4 * leaf.size for leaf in jax.tree.leaves(program.abstract_state.params))
    found = (
        program.train_step.lower(program.describe_state(), program.batch)
        .compile()
        .memory_analysis()
    )
    assert found.alias_size_in_bytes >= 3 * size
    assert size < found.temp_size_in_bytes < 2 * size


def lower_step(compute):
    """Compile the step of a model whose memory is mostly tensors saved for the backward pass."""
    model = BertConfig(vocab=64, length=64, width=32, depth=2, num_heads=4, mlp=256, scan=False)
    data = Data(
        objective=MaskedLm(length=64, max_predictions=8, rows="documents"),
        store="none",
        batch_size=32,
    )
    program = make_program(
        Run(model, data, optimizer=AdamW(), train=Train(steps=2, compute_dtype=compute)),
        make_mesh(Mesh(1), jax.devices()[:1]),
    )
    return program.train_step.lower(program.describe_state(), program.batch)


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_recomputed_values_are_not_saved(compute):
    """XLA respects `optimization_barrier` with its option; without it, XLA merges the recomputation
    and saves everything.
    """
    step = lower_step(compute)
    heeded, plain = (
        step.compile(options).memory_analysis().temp_size_in_bytes
        for options in (None, {"xla_disable_hlo_passes": ""})
    )
    assert heeded < 0.75 * plain


@pytest.mark.slow
def test_the_initialisation_program_is_discarded():
    model = Gpt2Config(vocab=256, length=8, width=16, depth=1, num_heads=2, mlp=32)
    data = Data(objective=CausalLm(length=8), store="none", batch_size=1)
    program = make_program(
        Run(model, data, optimizer=AdamW(), train=Train(steps=2)),
        make_mesh(Mesh(1), jax.devices()[:1]),
    )
    state = jax.block_until_ready(program.init())
    gc.collect()
    names = [
        executable.hlo_modules()[0].name
        for executable in jax.devices()[0].client.live_executables()
    ]
    assert not [name for name in names if "init_state" in name]
    assert jax.tree.map(lambda leaf: leaf.shape, state) == jax.tree.map(
        lambda leaf: leaf.shape, program.abstract_state
    )
