"""Attention on a CPU, in parts of the rows that run at the same time.

XLA's CPU compiler computes a product with batch dimensions, such as the scores of all heads, on one
core. The attention of two parts of the rows is two chains of operations that do not wait for each
other, and run on two cores.

B batch   L length of queries   M length of keys   H heads   G key heads   K head width
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, PairBias, make_dense_bias
from pretrain.kernels.attention.plain.softmax import attend, move_shared_dropout
from pretrain.kernels.hash_dropout import drop_by_hash, take_dropout_part

NUM_PARTS = 2
# A product of fewer multiplications takes less than a millisecond, and parts cost time to compile.
MIN_MULTIPLICATIONS = 1 << 24


def attend_in_parts(
    q_BLHK: jax.Array,
    k_BMGK: jax.Array,
    v_BMGK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | PairBias | None = None,
    scale: float | None = None,
    drop: KeyedDropout | None = None,
) -> jax.Array:
    """Compute `softmax.attend`, in parts of the rows where that takes less time."""
    v_BMGK, drop = move_shared_dropout(q_BLHK, v_BMGK, mask, bias, drop)
    bias = make_dense_bias(bias)
    if not _is_splittable(q_BLHK, k_BMGK, mask, bias, drop):
        return attend(q_BLHK, k_BMGK, v_BMGK, mask=mask, bias=bias, scale=scale, drop=drop)
    B = q_BLHK.shape[0]

    def split(x: jax.Array) -> list[jax.Array]:
        return jnp.split(x, NUM_PARTS) if x.shape[0] == B else [x] * NUM_PARTS

    rules = mask if isinstance(mask, Mask) else _add_leading_axes(mask)
    whole = (q_BLHK, k_BMGK, v_BMGK), rules, _add_leading_axes(bias)
    leaves, structure = jax.tree.flatten(whole)
    outputs = []
    for part, part_leaves in enumerate(zip(*map(split, leaves), strict=True)):
        arrays, part_mask, part_bias = jax.tree.unflatten(structure, part_leaves)
        part_drop = drop and take_dropout_part(drop, part * B // NUM_PARTS)
        outputs.append(attend(*arrays, mask=part_mask, bias=part_bias, scale=scale, drop=part_drop))
    return jnp.concatenate(outputs)


def _add_leading_axes(x: jax.Array | None) -> jax.Array | None:
    """Return an array that broadcasts to [B, H, L, M] with all four axes."""
    return None if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)


def _is_splittable(
    q_BLHK: jax.Array, k_BMGK: jax.Array, mask: Any, bias: Any, drop: KeyedDropout | None
) -> bool:
    """Return whether `attend` scores all pairs of enough rows, and each row by itself."""
    B, L, H, K = q_BLHK.shape
    M = k_BMGK.shape[1]
    if not isinstance(B, int) or B % NUM_PARTS or B * H * L * M * K < MIN_MULTIPLICATIONS:
        return False
    if isinstance(mask, Mask) and (
        mask.step is not None or mask.chunks is not None or mask.find_block_pattern(L, M)
    ):
        return False
    return drop is None or (drop.drop_fn is drop_by_hash and not drop.broadcast_dims)
