"""Attention by cuDNN, on NVIDIA GPUs.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, make_dense_bias
from models.layers.relative.distance_bias import DistanceBias

MIN_COMPUTE_CAPABILITY = 8  # Ampere; a T4 has 7.5
MAX_CALLS = 1 << 14  # of one program, with scales that differ


def find_cudnn_obstacle(
    q_BLHK: jax.Array,
    k_BMHK: jax.Array,
    mask: Mask | jax.Array | None,
    bias: jax.Array | DistanceBias | None,
    drop: KeyedDropout | None,
    mesh: Mesh,
) -> str | None:
    """Return why cuDNN's attention cannot be used, or None."""
    B, L, H, K = q_BLHK.shape
    M = k_BMHK.shape[1]
    # "8.9" on a GPU of NVIDIA, "gfx942" on one of AMD, which has no cuDNN; a CPU has none.
    capability = getattr(mesh.devices.flat[0], "compute_capability", None)
    major = capability.partition(".")[0] if capability else str(MIN_COMPUTE_CAPABILITY)
    if not major.isdecimal() or int(major) < MIN_COMPUTE_CAPABILITY:
        return f"needs a GPU of compute capability {MIN_COMPUTE_CAPABILITY}.0, not of {capability}"
    if isinstance(mask, Mask) and mask.offset:
        return "takes no memory before the queries"
    if isinstance(mask, Mask) and mask.pattern:
        return "has no sparse patterns"
    if isinstance(mask, Mask) and mask.ranks is not None:
        return "takes no ranks of the positions"
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
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | DistanceBias | None = None,
    scale: float | None = None,
    drop: None = None,
    mesh: Mesh,
    calls: Iterator[int] | None = None,
    implementation: Literal["xla", "cudnn"] = "cudnn",
) -> jax.Array:
    """Compute `attend` by cuDNN's fused attention, which JAX shards over rows and heads.

    Args:
      calls: gives each call of a program another number; see `distinguish_scale`.
      implementation: "xla" computes the same by XLA, on any machine.
    """
    assert drop is None
    M, K = k_BMHK.shape[1], k_BMHK.shape[3]
    scale = distinguish_scale(K**-0.5 if scale is None else scale, next(calls or itertools.count()))
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
    bias = make_dense_bias(bias)
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


def distinguish_scale(scale: float, call: int) -> float:
    """Return a number that rounds to the float32 of `scale`, another one for each call.

    Of equal backward calls of a deterministic program, XLA finds the compiled kernel of the first
    one only: a step with several layers that are not scanned ended in an IndexError (JAX 0.11.2,
    openxla/xla#46500). cuDNN gets the scale in float32.
    """
    return float(np.float32(scale)) * (1 + call % MAX_CALLS * 2.0**-40)


def _select_pairwise_mask(mask: Mask | jax.Array | None) -> Any:
    """Return the part of a mask that cuDNN takes as an array of pairs, or None.

    It consists of segments, and of a window on both sides.
    """
    if not isinstance(mask, Mask):
        return mask
    window = None if mask.causal else mask.window
    if mask.segment_ids is None and window is None:
        return None
    return Mask(segment_ids=mask.segment_ids, window=window)
