"""What a step on a CPU holds besides its state, as XLA counts it before anything runs."""

import jax
import pytest

from data.config import Data
from data.objectives import CausalLm
from models.config import Gpt2Config
from pretrain.config import AdamW, Mesh, Run, Train
from pretrain.program import make_program
from pretrain.sharding import make_mesh


@pytest.fixture(autouse=True)
def strict():
    """optax promotes types freely."""


def test_a_step_copies_no_moments():
    """Nearly all of this model are two kernels, of which moments are the same size: activations are next to nothing."""
    model = Gpt2Config(vocab=256, length=8, width=128, depth=1, heads=2, mlp=8192, scan=False)
    data = Data(objective=CausalLm(length=8), store="none", batch_size=1)
    program = make_program(Run(model, data, optimizer=AdamW(), train=Train(steps=2)), make_mesh(Mesh(1), jax.devices()[:1]))
    size = sum(4 * leaf.size for leaf in jax.tree.leaves(program.abstract.params))
    found = program.update.lower(program.state(), program.batch).compile().memory_analysis()
    assert found.alias_size_in_bytes >= 3 * size
    assert size < found.temp_size_in_bytes < 2 * size
