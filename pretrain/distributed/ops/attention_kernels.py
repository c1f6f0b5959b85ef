"""The attention kernel of a mesh: Splash on TPU, cuDNN on NVIDIA GPUs, else XLA.

XLA also computes what a kernel does not support. Both kernels compute the softmax in blocks and
never hold the scores of all pairs. Neither can apply dropout to the weights in a way that a
training step could repeat, so XLA computes a model with attention dropout during training. The
reason against a kernel is reported once.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_masks
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask
from pretrain.distributed.ops.pair_scopes import count_visible_blocks, name_computed_blocks
from pretrain.distributed.ops.softmax import attend
from pretrain.distributed.ops.splash_patterns import (
    count_pattern_blocks,
    find_pattern_obstacle,
    make_head_masks,
    reorder_keys,
)
from pretrain.distributed.sharding import BATCH

LANES = 128  # of a TPU's vector unit; the kernel's blocks are multiples of it
MAX_BLOCK = 512  # largest number of positions of a block, which must divide a row

AnyMask = Mask | jax.Array | None


def make_attend(
    mesh: Mesh, report_kernel: Callable[[str, str | None], None] = lambda kernel, reason: None
) -> Callable[..., jax.Array]:
    """Return a function with the signature of `attend` for the devices of a mesh.

    report_kernel: called with (kernel, reason) whenever attention is traced. The reason says why
      the platform's own kernel was not chosen; it is None if it was.
    """
    kernels = {
        "tpu": ("Splash", find_splash_obstacle, attend_with_splash),
        "gpu": ("cuDNN", find_cudnn_obstacle, attend_with_cudnn),
    }
    platform = mesh.devices.flat[0].platform
    if platform not in kernels:
        report_kernel("XLA", None)
        return attend
    name, why_not, kernel = kernels[platform]

    def attend_by_kernel(
        q_BLHK: jax.Array,
        k_BMHK: jax.Array,
        v_BMHK: jax.Array,
        *,
        mask: AnyMask = None,
        bias: jax.Array | None = None,
        scale: float | None = None,
        drop: KeyedDropout | None = None,
    ) -> jax.Array:
        if isinstance(mask, Mask) and mask.offset:
            reason = "takes no memory before the queries"
        else:
            reason = why_not(q_BLHK, k_BMHK, mask, bias, drop, mesh)
        report_kernel("XLA" if reason else name, reason and f"{name} {reason}")
        if reason:
            return attend(q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=scale, drop=drop)
        return kernel(q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=scale, mesh=mesh)

    return attend_by_kernel


# ---- Splash, on TPU ----------------------------------------------------------


def find_splash_obstacle(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    mask: AnyMask,
    bias: jax.Array | None,
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
    if mask is not None and (reason := find_pattern_obstacle(mask)):
        return reason
    if mask is not None and mask.chunks is not None:
        return "takes no chunks of sorted keys"
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
    mesh: Mesh,
    interpret: bool = False,
) -> jax.Array:
    """Compute `attend` by Splash attention, a Pallas kernel that ships with JAX.

    Each device computes its own rows, heads and query positions. Blocks of pairs that a causal mask
    or a window rules out are skipped.

    Args:
      interpret: run the kernel on a CPU, slowly.
    """
    assert bias is None
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
        interpret=interpret,
    )
    kernel_spec = P(heads_axis, "sequence" if is_limited else None)
    scale = q_BLHK.shape[-1] ** -0.5 if scale is None else scale
    q_BHLK, k_BHMK, v_BHMK = (
        x.swapaxes(1, 2) for x in (q_BLHK * jnp.asarray(scale, q_BLHK.dtype), k_BMHK, v_BMHK)
    )
    query_spec, key_spec = P(BATCH[0], heads_axis, "sequence"), P(BATCH[0], heads_axis)
    segment_ids = _make_segment_ids(mask, q_BLHK.shape[0], L)
    id_specs: Any = P(BATCH[0], "sequence"), BATCH  # in place of arrays, as in_specs takes them
    segment_specs = segment_ids and splash.SegmentIds(*id_specs)
    attend_on_shards = jax.shard_map(
        lambda kernel, q, k, v, segments: jax.vmap(kernel)(q, k, v, segments),
        mesh=mesh,
        in_specs=(
            kernel.manual_sharding_spec(NamedSharding(mesh, kernel_spec)),
            *(query_spec, key_spec, key_spec, segment_specs),
        ),
        out_specs=query_spec,
        check_vma=False,  # the kernel does not say how its outputs vary
    )
    with name_computed_blocks(kernel, count_blocks) if is_limited else contextlib.nullcontext():
        return attend_on_shards(kernel, q_BHLK, k_BHMK, v_BHMK, segment_ids).swapaxes(1, 2)


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


# ---- cuDNN, on GPU -----------------------------------------------------------


def find_cudnn_obstacle(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    mask: AnyMask,
    bias: jax.Array | None,
    drop: KeyedDropout | None,
    mesh: Mesh,
) -> str | None:
    """Return why cuDNN's attention cannot be used, or None."""
    B, L, H, K = q_BLHK.shape
    M = k_BMHK.shape[1]
    if isinstance(mask, Mask) and mask.pattern:
        return "has no sparse patterns"
    if isinstance(mask, Mask) and mask.chunks is not None:
        return "takes no chunks of sorted keys"
    if drop is not None:
        return "drops weights by a seed that no step can change"
    if q_BLHK.dtype not in (jnp.bfloat16, jnp.float16):
        return f"computes in 16 bits, not in {q_BLHK.dtype}"
    if L % 2 or M % 2:
        return f"has gradients for even numbers of positions only, not for {L} x {M}"
    if _select_pairwise_mask(mask) is not None and bias is not None:
        return "has no gradient for a bias next to a mask of pairs"
    if bias is not None and bias.shape != (1, H, L, M):
        return f"takes a bias of [1, heads, L, M], not {list(bias.shape)}"
    if K > 128 or K % 8:
        return f"takes heads of up to 128 in steps of 8, not of {K}"
    if mesh.shape["sequence"] > 1:
        return "needs all positions of a row on one device"
    return None


def attend_with_cudnn(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    v_BMHK: jax.Array,
    *,
    mask: AnyMask = None,
    bias: jax.Array | None = None,
    scale: float | None = None,
    mesh: Mesh,
    implementation: Literal["xla", "cudnn"] = "cudnn",
) -> jax.Array:
    """Compute `attend` by cuDNN's fused attention, which JAX shards over rows and heads.

    implementation: "xla" computes the same by XLA, on any machine.
    """
    M = k_BMHK.shape[1]
    options: dict[str, Any] = {}
    pair_mask_array: Any = mask
    if isinstance(mask, Mask):
        # Padding is passed as lengths: a mask would be added to the bias, which then would have no
        # gradient. A row of padding alone has one key.
        if mask.attention_mask_BM is not None:
            lengths_B = mask.attention_mask_BM.sum(-1, dtype=jnp.int32)
            options["key_value_seq_lengths"] = jnp.maximum(lengths_B, 1)
        options["is_causal"] = mask.causal
        if mask.causal and mask.window is not None:
            options["local_window_size"] = mask.local_window_size
        pair_mask = _select_pairwise_mask(mask)
        pair_mask_array = None if pair_mask is None else pair_mask.make_dense(q_BLHK.shape[1], M)
    bias = None if bias is None else bias.astype(q_BLHK.dtype)
    return jax.nn.dot_product_attention(
        q_BLHK,
        k_BMHK,
        v_BMHK,
        bias,
        pair_mask_array,
        scale=scale,
        implementation=implementation,
        **options,
    )


def _select_pairwise_mask(mask: AnyMask) -> Any:
    """Return the part of a mask that cuDNN takes as an array of pairs, or None.

    It consists of segments, and of a window on both sides.
    """
    if not isinstance(mask, Mask):
        return mask
    window = None if mask.causal else mask.window
    if mask.segment_ids is None and window is None:
        return None
    return Mask(segment_ids=mask.segment_ids, window=window)
