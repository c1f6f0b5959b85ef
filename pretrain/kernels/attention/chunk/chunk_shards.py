"""The chunk kernel on a mesh: what it takes, and the part of each device.

B batch   L length   H heads   N chunks   C positions of a chunk   K head width
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from models.layers.dropout import KeyedDropout
from models.layers.long_rows.key_chunks import attend_in_chunks
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.chunk.chunk_call import average_local_chunks, choose_chunks
from pretrain.kernels.attention.row.sharded import find_drop_obstacle
from pretrain.kernels.attention.row.tiles import LANES
from pretrain.mesh.sharding import BATCH


def find_chunk_obstacle(
    q_BLHK: jax.Array,
    k_BLHK: jax.Array,
    mask: Mask,
    bias: jax.Array | DistanceBias | None,
    drop: KeyedDropout | None,
    mesh: Mesh,
) -> str | None:
    """Return why the chunk kernel cannot be used for a mask with chunks, or None."""
    (B, L, _, K), chunks = q_BLHK.shape, mask.chunks
    assert chunks is not None, "the caller has a mask with chunks"
    if mask.step is not None or bias is not None:
        return "takes no decoding step and no bias"
    if reason := find_drop_obstacle(drop):
        return reason
    if mesh.shape["sequence"] > 1:
        return "needs all positions of a row on one device"
    if chunks.size % LANES:
        return f"takes chunks of a multiple of {LANES} positions, not of {chunks.size}"
    if q_BLHK.dtype not in (jnp.bfloat16, jnp.float32):
        return f"computes in bfloat16 or float32, not in {q_BLHK.dtype}"
    num_shards = mesh.shape["data"] * mesh.shape["fsdp"]
    if B % num_shards:
        return f"needs rows on every device; {B} do not divide among {num_shards}"
    num_chunks = chunks.count_scored_pairs(L) // (2 * chunks.size**2)
    if choose_chunks(num_chunks, chunks.size, K, q_BLHK.dtype.itemsize) is None:
        return f"holds no scores of chunks of {chunks.size} positions and a width of {K}"
    return None


def attend_with_chunks(
    q_BLHK: jax.Array,
    k_BLHK: jax.Array,
    v_BLHK: jax.Array,
    *,
    mask: Mask,
    bias: None = None,
    scale: float | None = None,
    drop: KeyedDropout | None = None,
    mesh: Mesh,
    on_shard: bool = False,
    interpret: bool = False,
) -> jax.Array:
    """Compute `attend` of a mask with chunks by the chunk kernel.

    Each device computes its own rows and heads. XLA sorts them into chunks.

    Args:
      on_shard: whether `mesh` is one device, inside `jax.shard_map`, and the arrays are its own.
    """
    H = q_BLHK.shape[2]
    heads_axis = "model" if H % mesh.shape["model"] == 0 else None
    spec = P(BATCH[0], heads_axis)

    def average_chunks(
        *arrays: jax.Array | None, drop: KeyedDropout | None, **options: Any
    ) -> tuple[jax.Array, jax.Array]:
        average: Any = partial(
            _average_part,
            heads_axis=heads_axis,
            options=options | {"num_heads": H, "interpret": interpret},
        )
        if not on_shard:
            average = jax.shard_map(
                average,
                mesh=mesh,
                in_specs=(*(spec,) * len(arrays), P()),
                out_specs=spec,
                check_vma=False,  # the kernel does not say how its outputs vary
            )
        return average(*arrays, drop)

    assert mask.chunks is not None, "the caller has a mask with chunks"
    return attend_in_chunks(
        q_BLHK,
        k_BLHK,
        v_BLHK,
        chunks=mask.chunks,
        segment_ids=mask.combine_segment_ids(*q_BLHK.shape[:2]),
        scale=scale,
        drop=drop,
        average=average_chunks,
    )


def _average_part(
    q_BHNCK: jax.Array,
    k_BHNCK: jax.Array,
    v_BHNCK: jax.Array,
    positions_BHNC: jax.Array | None,
    ids_BHNC: jax.Array | None,
    drop: KeyedDropout | None,
    *,
    heads_axis: str | None,
    options: dict[str, Any],
) -> tuple[jax.Array, jax.Array]:
    """Compute `average_local_chunks` inside `jax.shard_map`.

    heads_axis: the axis of the mesh among which heads are divided, or None.
    options: of `average_local_chunks`.
    """
    first_row = jax.lax.axis_index(BATCH[0]) * q_BHNCK.shape[0]
    first_head = jax.lax.axis_index(heads_axis) * q_BHNCK.shape[1] if heads_axis else 0
    return average_local_chunks(
        *(q_BHNCK, k_BHNCK, v_BHNCK, positions_BHNC, ids_BHNC),
        drop=drop,
        first=(first_row, first_head),
        **options,
    )
