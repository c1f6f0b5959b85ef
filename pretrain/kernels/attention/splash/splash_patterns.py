"""Sparse patterns as static masks of Splash attention, which skips blocks without a visible pair.

A block has at least 128 x 128 pairs, and in the order of a row each holds a summary of the fixed
pattern. With the summaries in front of the other keys, the others are in blocks on the diagonal.

B batch   M length of a row, of queries and of keys   H heads   K head width
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_masks

from models.layers.block_sparse import SparsePattern
from models.layers.masks import Mask


class PatternMask(splash_masks.Mask):
    """The pairs of one head, computed when they are read; keys are in the order of `order_keys`.

    pattern: the pattern.
    length: M.
    head: the number of the head.
    """

    def __init__(self, pattern: SparsePattern, length: int, head: int) -> None:
        self.identity = pattern, length, head % pattern.subblocks
        self.order_M = order_keys(*self.identity)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of queries and of keys."""
        return (self.identity[1],) * 2

    def __getitem__(self, idx: Any) -> np.ndarray:
        pattern, length, head = self.identity
        return pattern.is_visible(np.arange(length)[idx[0]][:, None], self.order_M[idx[1]], head)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternMask) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


def find_pattern_obstacle(mask: Mask) -> str | None:
    """Return why Splash does not take the sparse pattern of a mask, or None."""
    pattern = mask.pattern
    if pattern is None:
        return None
    if pattern.kind == "strided" and pattern.part != "first":
        return "could skip no block of a strided pattern"
    is_packed = mask.segment_ids is not None or mask.attention_mask_BM is not None
    if pattern.part != "first" and pattern.subblocks > 1 and is_packed:
        return "takes segments only in an order of keys that all heads share (model.subblocks=1)"
    return None


def make_head_masks(mask: Mask | None, shape: tuple[int, int], H: int) -> list[splash_masks.Mask]:
    """Return the static part of a mask for each head, by which blocks are skipped.

    shape: the number of queries and of keys.
    """
    if mask is not None and mask.pattern:
        return [PatternMask(mask.pattern, shape[1], head) for head in range(H)]
    reach = (None, None) if mask is None else mask.local_window_size
    if reach == (None, None):
        return [splash_masks.FullMask(shape)] * H
    if reach == (None, 0):
        return [splash_masks.CausalMask(shape)] * H
    return [splash_masks.LocalMask(shape, reach, 0)] * H


def order_keys(pattern: SparsePattern, M: int, head: int) -> np.ndarray:
    """Return the keys in the order in which a head reads them, int [M]: the summaries first."""
    j_M = np.arange(M, dtype=np.int32)
    if pattern.kind == "strided" or pattern.part == "first":
        return j_M
    before_end_M = pattern.stride - 1 - j_M % pattern.stride
    is_summary_M = before_end_M // pattern.summary == head % pattern.subblocks
    return np.argsort(~is_summary_M, kind="stable").astype(np.int32)


def reorder_keys(pattern: SparsePattern, x_BMH: jax.Array) -> jax.Array:
    """Return x [B, M, H, ...] at the keys of each head in its order."""
    M, H = x_BMH.shape[1:3]
    if pattern.kind == "strided" or pattern.part == "first":
        return x_BMH
    order_MH = np.stack([order_keys(pattern, M, head) for head in range(H)], axis=1)
    indices = order_MH.reshape(1, M, H, *[1] * (x_BMH.ndim - 3))
    return jnp.take_along_axis(x_BMH, jnp.asarray(indices), axis=1)


@functools.cache
def count_pattern_blocks(pattern: SparsePattern, M: int, block_q: int, block_kv: int) -> int:
    """Return how many blocks of an M x M square hold a visible pair, in the mean of the heads."""
    num_heads = 1 if pattern.part == "first" else pattern.subblocks
    total = 0
    for head in range(num_heads):
        mask = PatternMask(pattern, M, head)
        for start in range(0, M, block_q):
            visible_QM = mask[slice(start, start + block_q), slice(None)]
            total += int(visible_QM.reshape(-1, M // block_kv, block_kv).any((0, 2)).sum())
    return round(total / num_heads)
