"""The floor of a step, by its formulas."""

import jax
import pytest

from pretrain.config import Mesh, load
from pretrain.mesh.sharding import make_mesh
from pretrain.plan.floor import compute_floor, count_gradient_bytes
from pretrain.training.optimizers import make_frozen_test
from pretrain.training.program import make_program
from tests.pretrain.plan.test_plan import slice_of_chips

HELD = {"parameters": 4e9, "optimizer": 8e9, "batch": 1e6}


def test_the_floor_is_the_longest_of_what_a_step_needs():
    """A chip of the slice has four links: one along each short side, two along the ring of 4."""
    machine, mesh = slice_of_chips("v5p:2x2x4", "TPU v5")
    floor = compute_floor(int(16 * 459e12 * 0.003), HELD, 2e9, mesh, machine)
    assert floor.matmul == pytest.approx(0.003)
    assert floor.memory == pytest.approx((2 * 12e9 + 1e6) / 2765e9)
    assert floor.exchange == pytest.approx(2 * 2e9 * 15 / 16 / 400e9)
    assert floor.seconds == floor.exchange > floor.memory > floor.matmul


def test_slices_sum_what_each_chip_has_of_the_gradients():
    """Each of 4 chips sends its quarter to 3 other slices, by 6.25 GB/s, after its own slice's."""
    machine, mesh = slice_of_chips("v5p:2x2x1", "TPU v5", slices=4)
    floor = compute_floor(0, HELD, 2e9, mesh, machine)
    assert floor.exchange == pytest.approx(2 * (2e9 / 4) * 3 / 4 / 6.25e9)


def test_a_single_chip_exchanges_nothing():
    machine, mesh = slice_of_chips("v5e:1x1", "TPU v5 lite")
    assert compute_floor(1, HELD, 2e9, mesh, machine).exchange == 0


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sizes", [(8, 1, 1), (1, 8, 1), (2, 2, 2)], ids=str)
def test_gradients_are_summed_once_in_the_compute_dtype(sizes):
    """What `model` splits is summed in parts: all kernels of layers and the table, not the norms."""
    run = load("bert_tiny", ["data.store=none", "data.batch_size=8"])
    program = make_program(run, make_mesh(Mesh(*sizes), jax.devices()))
    count = sum(leaf.size for leaf in jax.tree.leaves(program.abstract_state.params))
    size, frozen = count_gradient_bytes(program, "bfloat16")
    assert frozen == 0
    assert 2 * count / sizes[2] <= size < 1.1 * 2 * count / sizes[2]
    assert size == 2 * count or sizes[2] > 1


def test_a_teacher_has_no_gradients_and_is_not_written():
    """DistilBERT's has no optimizer state either."""
    run = load("distilbert_tiny", ["data.store=none", "data.batch_size=8"])
    program = make_program(run, make_mesh(Mesh(8, 1, 1), jax.devices()))
    params = program.abstract_state.params
    student, teacher = (
        sum(leaf.size for leaf in jax.tree.leaves(params[name])) for name in ("student", "teacher")
    )
    found = count_gradient_bytes(program, "bfloat16", make_frozen_test(run))
    assert found == (2 * student, 4 * teacher)
    machine, mesh = slice_of_chips("v5p:2x2x4", "TPU v5")
    floor = compute_floor(0, HELD, 0.0, mesh, machine, 1e9)
    assert floor.memory == pytest.approx((2 * 12e9 - 1e9 + 1e6) / 2765e9)
