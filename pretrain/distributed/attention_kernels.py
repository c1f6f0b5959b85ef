"""Which attention runs on a mesh: Splash on TPU, cuDNN on NVIDIA GPUs, XLA's own elsewhere and wherever the kernel lacks what is asked.

Both kernels compute the softmax in pieces and never hold the scores of all pairs. Neither drops weights in a way that a training step
could repeat, so a model with attention dropout is computed by XLA while it trains; and each says why, once (`note`).

B batch   L length of the readers   M length of what is read   H heads   K head width
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_masks
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from models.layers.masks import Mask
from pretrain.distributed.ops.softmax import attend
from pretrain.distributed.sharding import BATCH

LANES = 128  # of a TPU's vector unit: what the kernel's blocks are multiples of
BLOCK = 512  # positions of a block: the largest that divides a row


def make_attend(mesh, note=lambda kernel, reason: None):
    """A function of `attend`'s signature for the devices of a mesh.

    note(kernel, reason): hears, whenever attention is traced, which kernel it became, and why not the platform's own (None where it is).
    """
    table = {
        "tpu": ("Splash", why_not_splash, splash_attend),
        "gpu": ("cuDNN", why_not_cudnn, cudnn_attend),
    }
    platform = mesh.devices.flat[0].platform
    if platform not in table:
        note("XLA", None)
        return attend
    name, why_not, kernel = table[platform]

    def chosen(q_BLHK, k_BMHK, v_BMHK, *, mask=None, bias=None, scale=None, drop=None):
        reason = why_not(q_BLHK, k_BMHK, mask, bias, drop, mesh)
        note("XLA" if reason else name, reason and f"{name} {reason}")
        if reason:
            return attend(q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=scale, drop=drop)
        return kernel(q_BLHK, k_BMHK, v_BMHK, mask=mask, bias=bias, scale=scale, mesh=mesh)

    return chosen


# ---- Splash, on TPU ----------------------------------------------------------


def why_not_splash(q_BLHK, k_BMHK, mask, bias, drop, mesh):
    """What stands against Splash attention, or None."""
    L, M = q_BLHK.shape[1], k_BMHK.shape[1]
    if drop is not None:
        return "cannot drop weights"
    if bias is not None:
        return "cannot add a bias to the scores"
    if mask is not None and not isinstance(mask, Mask):
        return "takes no mask that is given pair by pair"
    if mask is not None and mask.window is not None and L != M:
        return f"takes a window of as many readers as are read, not of {L} and {M}"
    for length, parts in ((L, mesh.shape["sequence"]), (M, 1)):
        if length % (LANES * parts):
            return f"takes {LANES} positions at once, into which {length} on {parts} devices do not divide"
    if q_BLHK.shape[0] % _rows(mesh):
        return f"needs rows on every device; {q_BLHK.shape[0]} do not divide among {_rows(mesh)}"
    return None


def splash_attend(
    q_BLHK, k_BMHK, v_BMHK, *, mask=None, bias=None, scale=None, mesh, interpret=False
):
    """Splash attention (a Pallas kernel that ships with JAX) on each device's rows, heads and, of the readers, positions.

    Blocks of pairs that a causal mask or a window, of one side or both, rules out are not computed. interpret: run it on a CPU, slowly.
    """
    assert bias is None
    L, H, M = *q_BLHK.shape[1:3], k_BMHK.shape[1]
    parts = mesh.shape["sequence"]
    heads = "model" if H % mesh.shape["model"] == 0 else None
    reach = (None, None) if mask is None else mask.reach
    # Without bounds all readers are alike, and the kernel is that of one device's.
    is_bounded = reach != (None, None)
    kernel = splash.make_splash_mha(
        splash_masks.MultiHeadMask(
            [_splash_mask(reach, L, M) if is_bounded else splash_masks.FullMask((L // parts, M))]
            * H
        ),
        block_sizes=_blocks(L // parts, M),
        head_shards=mesh.shape["model"] if heads else 1,
        q_seq_shards=parts if is_bounded else 1,
        interpret=interpret,
    )
    over = P(heads, "sequence" if is_bounded else None)
    scale = q_BLHK.shape[-1] ** -0.5 if scale is None else scale
    q_BHLK, k_BHMK, v_BHMK = (
        x.swapaxes(1, 2) for x in (q_BLHK * jnp.asarray(scale, q_BLHK.dtype), k_BMHK, v_BMHK)
    )
    reads, read = P(BATCH[0], heads, "sequence"), P(BATCH[0], heads)
    segments = _segments(mask, q_BLHK.shape[0], L, M)
    specs: Any = P(BATCH[0], "sequence"), BATCH  # in place of the arrays, as in_specs takes them
    ids = segments and splash.SegmentIds(*specs)
    o_BHLK = jax.shard_map(
        lambda kernel, q, k, v, segments: jax.vmap(kernel)(q, k, v, segments),
        mesh=mesh,
        in_specs=(kernel.manual_sharding_spec(NamedSharding(mesh, over)), reads, read, read, ids),
        out_specs=reads,
        check_vma=False,  # the kernel does not say how its outputs vary
    )(kernel, q_BHLK, k_BHMK, v_BHMK, segments)
    return o_BHLK.swapaxes(1, 2)


def _splash_mask(reach, L, M):
    """Return what is known before the batch is, of `Mask.reach`: the part of a mask by which blocks are left out."""
    if reach == (None, 0):
        return splash_masks.CausalMask((L, M))
    return splash_masks.LocalMask((L, M), reach, 0)


def _segments(mask, B, L, M):
    """Ids of which only equal ones meet, from what is padding and from segments; None where neither is."""
    if mask is None or (mask.valid_BM is None and mask.segments is None):
        return None
    if mask.segments is None:
        readers_BL, read_BM = jnp.ones((B, L), jnp.int32), jnp.ones((B, M), jnp.int32)
    else:
        readers_BL, read_BM = mask.segments
    if mask.valid_BM is not None:
        read_BM = jnp.where(mask.valid_BM, read_BM, -1)  # an id that no reader has
    return splash.SegmentIds(readers_BL, read_BM)


def _blocks(L, M):
    """Blocks of readers and of what is read, forwards and backwards."""
    q, kv = (
        next(size for size in range(min(length, BLOCK), 0, -LANES) if length % size == 0)
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


def _rows(mesh):
    return mesh.shape["data"] * mesh.shape["fsdp"]


# ---- cuDNN, on GPU -----------------------------------------------------------


def why_not_cudnn(q_BLHK, k_BMHK, mask, bias, drop, mesh):
    """What stands against cuDNN's attention, or None."""
    B, L, H, K = q_BLHK.shape
    M = k_BMHK.shape[1]
    if drop is not None:
        return "drops by a seed that no step can change"
    if q_BLHK.dtype not in (jnp.bfloat16, jnp.float16):
        return f"computes in 16 bits, not in {q_BLHK.dtype}"
    if _pairs(mask) is not None:
        if bias is not None:
            return "has no gradient for a bias beside a mask that is given pair by pair"
        if L % 2 or M % 2:
            return f"takes a mask of an even number of positions only, not {L} x {M}"
    if bias is not None and (bias.shape != (1, H, L, M) or L % 2 or M % 2):
        return f"takes a bias of [1, heads, L, M] of even lengths, not {list(bias.shape)}"
    if K > 128 or K % 8:
        return f"takes heads of up to 128 in steps of 8, not of {K}"
    if mesh.shape["sequence"] > 1:
        return "holds all positions of a row on one device"
    return None


def cudnn_attend(
    q_BLHK,
    k_BMHK,
    v_BMHK,
    *,
    mask=None,
    bias=None,
    scale=None,
    mesh,
    implementation: Literal["xla", "cudnn"] = "cudnn",
):
    """cuDNN's fused attention, which JAX splits over rows and heads as its arguments are split.

    implementation: "xla" asks XLA for the same, on any machine.
    """
    M = k_BMHK.shape[1]
    how: dict[str, Any] = {}
    if isinstance(mask, Mask):
        # Padding as lengths: as a mask it would be added to the bias, which then had no gradient. A row of padding alone reads one.
        if mask.valid_BM is not None:
            how["key_value_seq_lengths"] = jnp.maximum(mask.valid_BM.sum(-1, dtype=jnp.int32), 1)
        how["is_causal"] = mask.causal
        if mask.causal and mask.window is not None:
            how["local_window_size"] = mask.reach
        pairs = _pairs(mask)
        mask = None if pairs is None else pairs.dense(q_BLHK.shape[1], M)
    bias = None if bias is None else bias.astype(q_BLHK.dtype)
    return jax.nn.dot_product_attention(
        q_BLHK, k_BMHK, v_BMHK, bias, mask, scale=scale, implementation=implementation, **how
    )


def _pairs(mask):
    """Return the part of a mask that cuDNN takes pair by pair, or None: segments, and a window that also looks ahead."""
    if not isinstance(mask, Mask):
        return mask
    window = None if mask.causal else mask.window
    if mask.segments is None and window is None:
        return None
    return Mask(segments=mask.segments, window=window)
