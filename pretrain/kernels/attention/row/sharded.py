"""The whole-row kernel on a mesh: what it takes, and the part of each device.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias, TextScores
from pretrain.kernels.attention.row.call import attend_local_rows
from pretrain.kernels.attention.row.inputs import (
    count_distances,
    find_pair_terms,
    list_streams,
)
from pretrain.kernels.attention.row.tiles import (
    LARGE_VMEM,
    MAX_LENGTH,
    SMALL_VMEM,
    SQUARES_VMEM,
    SUBLANES,
    count_square_bytes,
    count_vmem_bytes,
    round_up,
)
from pretrain.kernels.hash_dropout import drop_by_hash, drop_on_shard
from pretrain.mesh.sharding import BATCH

MAX_HEAD_WIDTH = 256
# Kinds of devices that have at least 64 MiB of the memory of which a v4 has 16.
LARGE_VMEM_CHIPS = "TPU v5 lite", "TPU v5", "TPU v6 lite"


def find_row_obstacle(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    mask: Mask | jax.Array | None,
    bias: jax.Array | DistanceBias | None,
    drop: KeyedDropout | None,
    mesh: Mesh,
) -> str | None:
    """Return why the whole-row kernel cannot be used, or None."""
    B, L, H, K = q_BLHK.shape
    M = k_BMHK.shape[1]
    if isinstance(mask, Mask) or mask is None:
        reason = _find_mask_obstacle(mask, L, M, bias)
    elif mask.shape != (B, 1, L, M):
        reason = f"takes a mask of pairs of [B, 1, L, M], not {list(mask.shape)}"
    else:
        reason = None
    if reason := reason or find_drop_obstacle(drop):
        return reason
    if mesh.shape["sequence"] > 1:
        return "needs all positions of a row on one device"
    if max(L, M) > MAX_LENGTH and (reason := _find_square_obstacle(mask, bias, L, M)):
        return reason
    if isinstance(bias, DistanceBias):
        if bias.step is not None:
            return "takes no decoding step"
    elif bias is not None and bias.shape != (1, H, L, M):
        return f"takes a bias of [1, heads, L, M], not {list(bias.shape)}"
    if K > MAX_HEAD_WIDTH:
        return f"takes heads of up to {MAX_HEAD_WIDTH}, not of {K}"
    if q_BLHK.dtype not in (jnp.bfloat16, jnp.float32):
        return f"computes in bfloat16 or float32, not in {q_BLHK.dtype}"
    num_shards = mesh.shape["data"] * mesh.shape["fsdp"]
    if B % num_shards:
        return f"needs rows on every device; {B} do not divide among {num_shards}"
    width, itemsize = round_up(K, SUBLANES), q_BLHK.dtype.itemsize
    if max(L, M) > MAX_LENGTH:
        size = max(
            count_square_bytes(width, count, M, itemsize, count_distances(bias), span=span)
            for count, span in list_streams(L, bias)
        )
    else:
        size = count_vmem_bytes(1, width, L, M, itemsize, find_pair_terms(mask, bias))
    if size > (limit := get_vmem_bytes(mesh, max(L, M))):
        return (
            f"holds a head of a row in {limit / 2**20:.0f} MiB on the chip, not in the "
            f"{size / 2**20:.1f} of {L} x {M} positions and a width of {K}"
            + (" with a bias" if bias is not None else "")
        )
    return None


def get_vmem_bytes(mesh: Mesh, length: int) -> int:
    """Return the memory that a program may take on the chips of a mesh.

    length: positions of a row.
    """
    if mesh.devices.flat[0].device_kind not in LARGE_VMEM_CHIPS:
        return SMALL_VMEM
    return LARGE_VMEM if length <= MAX_LENGTH else SQUARES_VMEM


def _find_mask_obstacle(mask: Mask | None, L: int, M: int, bias: Any) -> str | None:
    if mask is None:
        return None
    if mask.step is not None:
        return "takes no decoding step"
    if mask.pattern:
        return "has no sparse patterns"
    if bias is None and mask.find_block_pattern(L, M):
        return f"computes all pairs near a window of {mask.window}, and XLA blocks of its length"
    return None


def _find_square_obstacle(
    mask: Mask | jax.Array | None, bias: jax.Array | DistanceBias | None, L: int, M: int
) -> str | None:
    """Return why a row of more than `MAX_LENGTH` positions cannot be computed in squares.

    Of many queries and few keys, such as Linformer's, XLA has few scores, and computes none twice.
    """
    if M <= MAX_LENGTH:
        return f"takes rows of up to {MAX_LENGTH} positions, not of {L}, for {M} keys"
    limit = f"in rows of up to {MAX_LENGTH} positions, not of {max(L, M)}"
    if mask is not None and not isinstance(mask, Mask):
        return f"takes a mask of pairs {limit}"
    if bias is not None and not isinstance(bias, DistanceBias):
        return f"takes a bias of pairs {limit}"
    return None


def find_drop_obstacle(drop: KeyedDropout | None) -> str | None:
    """Return why a kernel of this project cannot drop weights, or None."""
    if drop is None:
        return None
    if drop.rate == 1 or drop.broadcast_dims or drop.drop_fn not in (drop_by_hash, drop_on_shard):
        return "drops each weight by the hash of its position, at a rate below 1"
    return None


def _make_bias_spec(bias: jax.Array | DistanceBias | None, heads_axis: str | None) -> Any:
    """Return the specs of a bias, which rows share unless it is of distances."""
    if not isinstance(bias, DistanceBias):
        return P(None, heads_axis)
    rows: Any = P(BATCH[0])
    heads: Any = P(BATCH[0], heads_axis)
    return bias.replace(
        q_BLHK=P(BATCH[0], None, heads_axis),
        r_RHK=P(None, heads_axis),
        position_BP=None if bias.position_BP is None else rows,
        texts=None if bias.texts is None else TextScores(heads, heads, rows, rows),
    )


def attend_with_rows(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | DistanceBias | None = None,
    scale: float | None = None,
    drop: KeyedDropout | None = None,
    mesh: Mesh,
    on_shard: bool = False,
    interpret: bool = False,
) -> jax.Array:
    """Compute `attend` by the whole-row kernel. Each device computes its own rows and heads.

    Args:
      on_shard: whether `mesh` is one device, inside `jax.shard_map`, and the arrays are its own.
    """
    H = q_BLHK.shape[2]
    heads_axis = "model" if H % mesh.shape["model"] == 0 else None
    rows, spec = P(BATCH[0]), P(BATCH[0], None, heads_axis)

    def attend_part(
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        mask: Mask | jax.Array | None,
        bias: jax.Array | DistanceBias | None,
        drop: KeyedDropout | None,
    ) -> jax.Array:
        first_row = jax.lax.axis_index(BATCH[0]) * q.shape[0]
        first_head = jax.lax.axis_index(heads_axis) * q.shape[2] if heads_axis else 0
        return attend_local_rows(
            q,
            k,
            v,
            mask=mask,
            bias=bias,
            scale=scale,
            drop=drop,
            first=(first_row, first_head),
            num_heads=H,
            vmem_bytes=get_vmem_bytes(mesh, max(q.shape[1], k.shape[1])),
            interpret=interpret,
        )

    if not on_shard:
        attend_part = jax.shard_map(
            attend_part,
            mesh=mesh,
            in_specs=(spec, spec, spec, rows, _make_bias_spec(bias, heads_axis), P()),
            out_specs=spec,
            check_vma=False,  # the kernel does not say how its outputs vary
        )
    return attend_part(q_BLHK, k_BMHK, v_BMHK, mask, bias, drop)
