"""Compile small programs for TPUs that are not attached, and print their traffic as JSON.

A process of its own, because libtpu reads its settings once.
"""

import json
import sys

from pretrain.plan.topology import configure_environment, make_tpu_machine

configure_environment()

import jax  # noqa: E402  the environment comes first
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from pretrain.config import Mesh  # noqa: E402
from pretrain.mesh.sharding import make_mesh  # noqa: E402
from pretrain.plan.collectives import find_collectives  # noqa: E402
from pretrain.plan.hbm_traffic import count_memory_bytes  # noqa: E402
from pretrain.plan.hlo import HloModule  # noqa: E402
from pretrain.plan.work import (  # noqa: E402
    count_kernel_bytes,
    count_kernel_operations,
    count_vector_operations,
)

N = 16384  # a square of bfloat16 has 512 MiB, more than any memory on the chip
SHARDED = P("model")


def gather(x):
    """Return the whole array of the shards of all devices."""
    return jax.lax.all_gather(x, "model", tiled=True)


def scatter(x):
    """Return a shard of the sum over the devices."""
    return jax.lax.psum_scatter(x, "model", tiled=True)


def scan_products(x, weights):
    """Multiply x by each weight of a stack."""
    return jax.lax.scan(lambda x, weight: (x @ weight, None), x, weights)[0]


def add_tiles(x, tiles):
    """Add a row of tiles to each row of tiles of x."""
    side = tiles.shape[0]

    def add(x_ref, tile_ref, out_ref):
        out_ref[...] = x_ref[...] + tile_ref[...]

    return pl.pallas_call(
        add,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // side, x.shape[1] // side),
        in_specs=[
            pl.BlockSpec((side, side), lambda i, j: (i, j)),
            pl.BlockSpec((side, side), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((side, side), lambda i, j: (i, j)),
    )(x, tiles)


# {name: (topology, function, [(shape, dtype)])}; the functions of the second table run on 4 chips,
# and the first dimension of each array is split.
LOCAL = {
    "matmul chain": (
        "v5p:2x2x1",
        lambda x, v, w: (x @ v) @ w,
        [((N, N), "bfloat16")] * 3,
    ),
    "kernel": ("v5p:2x2x1", add_tiles, [((N, N), "bfloat16"), ((512, N), "bfloat16")]),
    "activation": (
        "v5p:2x2x1",
        lambda x, w: jnp.maximum((x @ w).astype(jnp.float32) * 2 + 1, 0).sum(),
        [((4096, 4096), "bfloat16")] * 2,
    ),
    "cast": ("v5p:2x2x1", lambda x: x.astype(jnp.bfloat16), [((N, N), "float32")]),
    "gather": (
        "v5p:2x2x1",
        lambda table, ids: table.at[ids].get(mode="clip"),
        [((2**20, 1024), "float32"), ((2**16,), "int32")],
    ),
    "slice": ("v5p:2x2x1", lambda x, y: x[3] + y, [((6, N, N), "bfloat16"), ((N, N), "bfloat16")]),
    "scan over slices, in and out": (
        "v5p:2x2x1",
        lambda stack: jax.lax.scan(lambda carry, x: (carry, x * 2), 0, stack)[1],
        [((6, N, N), "bfloat16")],
    ),
    "scan of large products": (
        "v5p:2x2x1",
        scan_products,
        [((N, N), "bfloat16"), ((6, N, N), "bfloat16")],
    ),
    "scan of small products": (
        "v5e:2x2",
        scan_products,
        [((512, 2048), "bfloat16"), ((12, 2048, 2048), "bfloat16")],
    ),
}
SPLIT = {
    "all-gather": (
        "v5p:2x2x1",
        lambda x, v, w: x @ gather(v) @ gather(w),
        [((N, N), "bfloat16"), ((N, N), "bfloat16"), ((N, N // 2), "bfloat16")],
    ),
    "all-gather during a matmul": (
        "v5e:2x2",
        lambda x, v, w: x @ gather(v) @ gather(w),
        [((N, N), "bfloat16"), ((N, N), "bfloat16"), ((N, N // 2), "bfloat16")],
    ),
    "reduce-scatter": (
        "v5p:2x2x1",
        lambda x, y: (scatter(x), scatter(y)),
        [((4 * N, N), "float32"), ((2 * N, N), "float32")],
    ),
}


def measure_traffic(topology, function, arrays, is_split):
    """Return what a program does on each device.

    Returns:
      {memory: bytes in HBM, vector: elementwise operations, exchanges: [kind, bytes, count,
      overlapped]}.
    """
    devices = make_tpu_machine(topology).devices
    mesh = make_mesh(Mesh(1, 1, 4), devices) if is_split else make_mesh(Mesh(1, 1), devices[:1])
    spec = SHARDED if is_split else P()
    if is_split:
        function = jax.shard_map(
            function,
            mesh=mesh,
            in_specs=(SHARDED,) * len(arrays),
            out_specs=SHARDED,
            check_vma=False,
        )
    sharding = NamedSharding(mesh, spec)
    shapes = [jax.ShapeDtypeStruct(*array, sharding=sharding) for array in arrays]
    with jax.set_mesh(mesh):
        traced = jax.jit(function, out_shardings=sharding).trace(*shapes)
        compiled = traced.lower().compile()
    module = HloModule(compiled.as_text())
    memory = count_memory_bytes(module) + count_kernel_bytes(traced.jaxpr) / mesh.size
    vector = count_vector_operations(module) + count_kernel_operations(traced.jaxpr) / mesh.size
    exchanges = [
        (one.kind, one.bytes, one.count, one.overlapped) for one in find_collectives(module, mesh)
    ]
    return {"memory": memory, "vector": vector, "exchanges": exchanges}


if __name__ == "__main__":
    traffic = {
        name: measure_traffic(*program, is_split=programs is SPLIT)
        for programs in (LOCAL, SPLIT)
        for name, program in programs.items()
    }
    json.dump(traffic, sys.stdout)
