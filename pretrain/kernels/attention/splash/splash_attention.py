"""Attention by Splash, a Pallas kernel for TPUs that ships with JAX.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_masks
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.splash.splash_patterns import (
    count_pattern_blocks,
    find_pattern_obstacle,
    make_head_masks,
    reorder_keys,
)
from pretrain.kernels.pair_scopes import count_visible_blocks, name_computed_blocks
from pretrain.mesh.sharding import BATCH

LANES = 128  # of a TPU's vector unit; the kernel's blocks are multiples of it
MAX_BLOCK = 512  # largest number of positions of a block, which must divide a row


def find_splash_obstacle(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    mask: Mask | jax.Array | None,
    bias: jax.Array | DistanceBias | None,
    drop: KeyedDropout | None,
    mesh: Mesh,
) -> str | None:
    """Return why Splash attention cannot be used, or None."""
    L, M = q_BLHK.shape[1], k_BMHK.shape[1]
    if drop is not None:
        return "cannot drop weights"
    if bias is not None:
        return "cannot add a bias to the scores"
    if mask is not None and not isinstance(mask, Mask):
        return "does not take a mask as an array of pairs"
    if mask is not None and mask.ranks is not None:
        return "takes no ranks of the positions"
    if mask is not None and mask.offset:
        return "takes no memory before the queries"
    if mask is not None and (reason := find_pattern_obstacle(mask)):
        return reason
    if mask is not None and mask.window is not None and L != M:
        return f"takes a window only for equal numbers of queries and keys, not for {L} and {M}"
    for length, shards in ((L, mesh.shape["sequence"]), (M, 1)):
        if length % (LANES * shards):
            return (
                f"takes multiples of {LANES} positions on each device, "
                f"not {length} positions on {shards} devices"
            )
    num_shards = mesh.shape["data"] * mesh.shape["fsdp"]
    if q_BLHK.shape[0] % num_shards:
        return f"needs rows on every device; {q_BLHK.shape[0]} do not divide among {num_shards}"
    return None


def attend_with_splash(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    *,
    mask: Mask | None = None,
    bias: None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    drop: None = None,
    mesh: Mesh,
    on_shard: bool = False,
    interpret: bool = False,
) -> jax.Array:
    """Compute `attend` by Splash attention, a Pallas kernel that ships with JAX.

    Each device computes its own rows, heads and query positions. Blocks of pairs that a causal mask
    or a window rules out are skipped.

    Args:
      on_shard: whether `mesh` is one device, inside `jax.shard_map`, and the arrays are its own.
    """
    assert bias is None and drop is None
    L, H, M = *q_BLHK.shape[1:3], k_BMHK.shape[1]
    sequence_shards = mesh.shape["sequence"]
    heads_axis = "model" if H % mesh.shape["model"] == 0 else None
    reach = (None, None) if mask is None else mask.local_window_size
    # Without a causal mask or a window, all queries have the same keys: one kernel serves them all.
    is_limited = reach != (None, None)
    count_blocks = partial(count_visible_blocks, reach, L, M)
    if mask is not None and mask.pattern:
        k_BMHK, v_BMHK = (reorder_keys(mask.pattern, x) for x in (k_BMHK, v_BMHK))
        count_blocks = partial(count_pattern_blocks, mask.pattern, M)
    shape = (L if is_limited else L // sequence_shards), M
    kernel = splash.make_splash_mha(
        splash_masks.MultiHeadMask(make_head_masks(mask, shape, H)),
        block_sizes=_choose_block_sizes(L // sequence_shards, M),
        head_shards=mesh.shape["model"] if heads_axis else 1,
        q_seq_shards=sequence_shards if is_limited else 1,
        attn_logits_soft_cap=soft_cap,
        interpret=interpret,
    )
    kernel_spec = P(heads_axis, "sequence" if is_limited else None)
    scale = q_BLHK.shape[-1] ** -0.5 if scale is None else scale
    q_BHLK, k_BHMK, v_BHMK = (
        x.swapaxes(1, 2) for x in (q_BLHK * jnp.asarray(scale, q_BLHK.dtype), k_BMHK, v_BMHK)
    )
    query_spec, key_spec = P(BATCH[0], heads_axis, "sequence"), P(BATCH[0], heads_axis)
    segment_ids = _make_segment_ids(mask, q_BLHK.shape[0], L)
    id_specs: Any = P(BATCH[0], "sequence"), BATCH  # instead of arrays, as in_specs takes them
    segment_specs = segment_ids and splash.SegmentIds(*id_specs)
    array_specs = query_spec, key_spec, key_spec, segment_specs
    attend_on_shards = _attend_to_rows
    if not on_shard:
        attend_on_shards = _make_attend_on_shards(kernel, kernel_spec, array_specs, mesh)
    with name_computed_blocks(kernel, count_blocks) if is_limited else contextlib.nullcontext():
        return attend_on_shards(kernel, q_BHLK, k_BHMK, v_BHMK, segment_ids).swapaxes(1, 2)


def _make_attend_on_shards(
    kernel: Any, kernel_spec: P, array_specs: tuple[Any, ...], mesh: Mesh
) -> Callable[..., jax.Array]:
    """Return `_attend_to_rows` for the arrays of all devices."""
    return jax.shard_map(
        _attend_to_rows,
        mesh=mesh,
        in_specs=(kernel.manual_sharding_spec(NamedSharding(mesh, kernel_spec)), *array_specs),
        out_specs=array_specs[0],
        check_vma=False,  # the kernel does not say how its outputs vary
    )


def _attend_to_rows(kernel: Any, q: Any, k: Any, v: Any, segment_ids: Any) -> jax.Array:
    return jax.vmap(kernel)(q, k, v, segment_ids)


def _make_segment_ids(mask: Mask | None, B: int, L: int) -> splash.SegmentIds | None:
    """Return the ids of the padding and the segments of a mask; None without either."""
    ids = mask and mask.combine_segment_ids(B, L)
    if ids is None or mask is None:
        return None
    query_ids_BL, key_ids_BM = ids
    if mask.pattern:
        key_ids_BM = reorder_keys(mask.pattern, key_ids_BM[..., None])[..., 0]
    return splash.SegmentIds(query_ids_BL, key_ids_BM)


def _choose_block_sizes(L: int, M: int) -> splash.BlockSizes:
    """Return the block sizes of queries and keys in the forward and the backward pass."""
    q, kv = (
        next(size for size in range(min(length, MAX_BLOCK), 0, -LANES) if length % size == 0)
        for length in (L, M)
    )
    return splash.BlockSizes(
        block_q=q,
        block_kv=kv,
        block_kv_compute=kv,
        block_q_dkv=q,
        block_kv_dkv=kv,
        block_kv_dkv_compute=kv,
        block_q_dq=q,
        block_kv_dq=kv,
    )
