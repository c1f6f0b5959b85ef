"""What Pallas kernels move and compute, against a walk over the grid and counts by hand."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

from pretrain.config import Mesh
from pretrain.mesh.sharding import make_mesh
from pretrain.plan.work import count_kernel_bytes, count_kernel_operations

ROWS, COLUMNS, SUMMED = 64, 48, 96
BLOCK = 16  # 4 x 3 x 6 blocks


def walk_grid(grid, maps):
    """Return how often each map gives another block than in the step before."""
    copies, last = [0] * len(maps), [None] * len(maps)
    for step in itertools.product(*(range(size) for size in grid)):
        for number, index_map in enumerate(maps):
            if index_map(*step) != last[number]:
                copies[number], last[number] = copies[number] + 1, index_map(*step)
    return copies


# The order of the dimensions of the grid: of rows i, columns j and sums k.
GRIDS = {
    "ijk": ((4, 3, 6), lambda i, j, k: (i, k), lambda i, j, k: (k, j), lambda i, j, k: (i, j)),
    "jik": ((3, 4, 6), lambda j, i, k: (i, k), lambda j, i, k: (k, j), lambda j, i, k: (i, j)),
    "kij": ((6, 4, 3), lambda k, i, j: (i, k), lambda k, i, j: (k, j), lambda k, i, j: (i, j)),
    "one column": ((4, 1), lambda i, j: (i, 0), lambda i, j: (0, j), lambda i, j: (i, j)),
    "turned": ((4, 3), lambda i, j: (3 - i, 0), lambda i, j: (0, (j + 1) % 3), lambda i, j: (i, j)),
}


def multiply_blocks(x_ref, y_ref, out_ref):
    out_ref[...] = x_ref[...] @ y_ref[...]


def trace_product(order, dtype=jnp.float32):
    """Return the jaxpr of a product in blocks, and the shape of a block of each array."""
    grid, *maps = GRIDS[order]
    summed = BLOCK if len(grid) == 3 else SUMMED
    columns = COLUMNS if order == "one column" else BLOCK
    shapes = [(BLOCK, summed), (summed, columns), (BLOCK, columns)]
    specs = [pl.BlockSpec(shape, index_map) for shape, index_map in zip(shapes, maps)]
    product = pl.pallas_call(
        multiply_blocks,
        out_shape=jax.ShapeDtypeStruct((ROWS, COLUMNS), dtype),
        grid=grid,
        in_specs=specs[:2],
        out_specs=specs[2],
    )
    x, y = jnp.ones((ROWS, SUMMED), dtype), jnp.ones((SUMMED, COLUMNS), dtype)
    return jax.make_jaxpr(product)(x, y), shapes


@pytest.mark.held_by(3)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("order", GRIDS)
def test_a_block_is_copied_whenever_the_grid_comes_to_another(order, dtype):
    jaxpr, shapes = trace_product(order, dtype)
    grid, *maps = GRIDS[order]
    copies = walk_grid(grid, maps)
    itemsize = jnp.dtype(dtype).itemsize
    expected = sum(n * math.prod(shape) * itemsize for n, shape in zip(copies, shapes))
    assert count_kernel_bytes(jaxpr) == expected


def test_a_kernel_counts_as_often_as_it_runs_and_on_every_device():
    jaxpr, _ = trace_product("ijk")
    once = count_kernel_bytes(jaxpr)
    product = jax.extend.core.jaxpr_as_fun(jaxpr)
    y = jnp.ones((SUMMED, COLUMNS))

    def repeat(x):
        return jax.lax.scan(lambda x, _: (x, product(x, y)[0]), x, length=5)[1]

    x = jnp.ones((ROWS, SUMMED))
    assert count_kernel_bytes(jax.make_jaxpr(repeat)(x)) == 5 * once
    mesh = make_mesh(Mesh(data=4), jax.devices()[:4])
    split = jax.shard_map(
        lambda x: product(x, y)[0], mesh=mesh, in_specs=P("data"), out_specs=P("data")
    )
    x = jnp.ones((4 * ROWS, SUMMED))
    assert count_kernel_bytes(jax.make_jaxpr(split)(x)) == 4 * once


def test_blocks_that_a_mask_rules_out_are_not_copied():
    """The map of `x` reads the mask's scalars, and 3 of 8 blocks are named as computed."""
    kernel = pl.pallas_call(
        lambda index_ref, x_ref, y_ref, out_ref: None,
        name="splash_mha_fwd_no_residuals",
        out_shape=jax.ShapeDtypeStruct((16, 128), jnp.float32),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(2, 4),
            in_specs=[
                pl.BlockSpec((8, 128), lambda i, j, index_ref: (index_ref[i, j], 0)),
                pl.BlockSpec((8, 128), lambda i, j, index_ref: (i, 0)),
            ],
            out_specs=pl.BlockSpec((8, 128), lambda i, j, index_ref: (i, 0)),
        ),
    )

    def attend(index, x, y):
        with jax.named_scope("blocks_fwd_3_of_8"):
            return kernel(index, x, y)

    x = jnp.ones((32, 128))
    jaxpr = jax.make_jaxpr(attend)(np.zeros((2, 4), np.int32), x, x[:16])
    assert count_kernel_bytes(jaxpr) == (3 + 2 + 2) * 8 * 128 * 4 + 2 * 4 * 4


def test_operations_of_a_kernel_are_those_of_its_blocks():
    """Three on each element of a block, a sum of all, and one on each row."""

    def compute(x_ref, out_ref):
        x = x_ref[...]
        out_ref[...] = 1.0 - jnp.exp(x * 2.0 + x).sum(axis=1, keepdims=True)

    kernel = pl.pallas_call(
        compute,
        out_shape=jax.ShapeDtypeStruct((64, 1), jnp.float32),
        grid=(4,),
        in_specs=[pl.BlockSpec((16, 128), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((16, 1), lambda i: (i, 0)),
    )
    jaxpr = jax.make_jaxpr(lambda x: kernel(x) + 1)(jnp.ones((64, 128)))
    assert count_kernel_operations(jaxpr) == 4 * (4 * 16 * 128 + 16)
