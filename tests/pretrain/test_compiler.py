"""What a step on a CPU holds besides its state, as XLA counts it before anything runs."""

import jax

from data.config import Data
from data.objectives import CausalLm
from models.config import Gpt2Config
from pretrain.config import AdamW, Mesh, Run, Train
from pretrain.program import make_program
from pretrain.sharding import make_mesh


def test_a_step_holds_its_gradients_once_and_no_copy_of_its_moments():
    """Four fifths of this model are one table, so that activations are next to nothing."""
    model = Gpt2Config(vocab=8192, length=16, width=128, depth=1, heads=2, mlp=512, scan=False)
    run = Run(model, Data(CausalLm(length=16), "none", 1), optimizer=AdamW(), train=Train(steps=2))
    program = make_program(run, make_mesh(Mesh(1), jax.devices()[:1]))
    size = sum(4 * leaf.size for leaf in jax.tree.leaves(program.abstract.params))
    bytes_ = program.update.lower(program.state(), program.batch).compile().memory_analysis()
    assert bytes_.alias_size_in_bytes >= 3 * size
    assert size < bytes_.temp_size_in_bytes < 1.5 * size
