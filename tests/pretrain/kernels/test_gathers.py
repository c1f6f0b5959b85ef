"""Gathers whose gradients are sums of sorted rows: the sums of numpy, on a mesh too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers import ops
from pretrain.config import Mesh
from pretrain.kernels.gathers import BLOCK, make_take_rows, sum_rows, take_positions
from pretrain.mesh.sharding import BATCH, make_mesh

V, D = 300, 16
sum_compiled = jax.jit(sum_rows, static_argnums=2)


def draw_rows(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, D), dtype=np.float32)


def add_rows(rows, ids, size):
    """Return the sums in float64; ids outside of the table are dropped."""
    expected, inside = np.zeros((size, rows.shape[1])), (ids >= 0) & (ids < size)
    np.add.at(expected, ids[inside], rows[inside].astype(np.float64))
    return expected


@pytest.mark.held_by(4)
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: rng.integers(0, V, n),
        lambda rng, n: rng.integers(0, 3, n),
        lambda rng, n: np.full(n, 7),
        lambda rng, n: np.minimum(rng.zipf(1.2, n), V) - 1,
        lambda rng, n: rng.permutation(np.repeat([0, 5, V - 1], n // 3 + 1)[:n]),
        lambda rng, n: rng.integers(-2, V + 2, n),
    ],
    ids=["uniform", "three", "one", "zipf", "whole blocks", "outside"],
)
@pytest.mark.parametrize("count", [1, BLOCK - 1, 3 * BLOCK, 1_000])
def test_sums_are_those_of_numpy(draw, count):
    ids, rows = draw(np.random.default_rng(count), count).astype(np.int32), draw_rows(count)
    np.testing.assert_allclose(
        sum_compiled(rows, ids, V), add_rows(rows, ids, V), atol=2e-5, rtol=1e-5
    )


def test_bfloat16_rows_are_added_in_float32():
    """The sum of 4,096 rows of 1 + 1/128, which bfloat16 could not hold."""
    rows = jnp.full((4_096, D), 1 + 2**-7, jnp.bfloat16)
    sums = sum_compiled(rows, jnp.zeros(4_096, jnp.int32), 2)
    assert sums.dtype == jnp.float32
    np.testing.assert_array_equal(sums[0], np.full(D, 4_096 * (1 + 2**-7)))
    np.testing.assert_array_equal(sums[1], 0)


@pytest.mark.held_by(3)
@pytest.mark.parametrize("sizes", [(1,), (2, 4), (2, 2, 2), (8,)], ids=str)
@pytest.mark.parametrize("shape", [(8, 40), (8, 12, 3), (5,)], ids=str)
def test_take_rows_has_the_gradient_of_a_gather(sizes, shape):
    mesh = make_mesh(Mesh(*sizes), jax.devices()[: int(np.prod(sizes))])
    rng = np.random.default_rng(1)
    table, ids = draw_rows(V), rng.integers(0, V, shape).astype(np.int32)
    weights = rng.standard_normal((*shape, D), dtype=np.float32)
    if len(shape) > 1:
        ids, weights = jax.device_put((ids, weights), jax.NamedSharding(mesh, BATCH))

    take = make_take_rows(mesh)
    with jax.set_mesh(mesh):
        weigh = lambda table, ids: (take(table, ids) * weights).sum()  # noqa: E731
        value, gradient = jax.jit(jax.value_and_grad(weigh))(table, ids)
    ids, weights = np.asarray(ids), np.asarray(weights)
    np.testing.assert_allclose(
        value, (table[ids] * weights).sum(dtype=np.float64), atol=1e-5, rtol=1e-5
    )
    expected = add_rows(weights.reshape(-1, D), ids.ravel(), V)
    np.testing.assert_allclose(gradient, expected, atol=1e-5, rtol=1e-5)


def test_a_row_outside_of_the_table_is_nan_and_has_no_gradient():
    take = make_take_rows(make_mesh(Mesh(1), jax.devices()[:1]))
    table, ids = draw_rows(4), np.array([0, 4, -1, 9], np.int32)

    @jax.jit
    def compute(table):
        rows, pull = jax.vjp(lambda table: take(table, ids), table)
        return rows, *pull(jnp.ones((4, D)))

    rows, gradient = map(np.asarray, compute(table))
    np.testing.assert_array_equal(np.isnan(rows[:, 0]), [False, True, False, True])
    np.testing.assert_array_equal(gradient[:, 0], [1, 0, 0, 1])


def test_take_positions_has_the_gradient_of_a_gather():
    """Positions that are repeated are added, as padding's are."""
    x = draw_rows(6 * 10).reshape(6, 10, D)
    positions = np.random.default_rng(2).integers(0, 10, (6, 5)).astype(np.int32)
    weights = draw_rows(6 * 5, seed=3).reshape(6, 5, D)

    def run(take):
        return jax.jit(jax.value_and_grad(lambda x: (take(x, positions) * weights).sum()))(x)

    for one, other in zip(run(take_positions), run(ops.take_positions), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)
