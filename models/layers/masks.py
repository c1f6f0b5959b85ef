"""Attention masks, represented by their rules instead of a dense array.

An attention kernel can then skip what is masked, and never holds an array of all pairs.

B batch   L query length   M key length   H heads
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Literal

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from models.layers.cache import DecodingStep

if TYPE_CHECKING:
    from models.layers.block_sparse import SparsePattern
    from models.layers.long_rows.key_chunks import KeyChunks


class PairBias(flax.struct.PyTreeNode):
    """A bias of the scores that is represented by its terms instead of an array of all pairs."""

    def make_dense(self) -> jax.Array:
        """Return the bias of each pair, float32 [B, H, L, M]."""
        raise NotImplementedError


def make_dense_bias(bias: jax.Array | PairBias | None) -> jax.Array | None:
    """Return a bias as an array that broadcasts to [B, H, L, M]."""
    return bias.make_dense() if isinstance(bias, PairBias) else bias


class Mask(flax.struct.PyTreeNode):
    """A conjunction of rules; without any, every query attends to every key.

    attention_mask_BM: bool, True on tokens, which are on the left, False on the padding to their
      right.
    segment_ids: int32 (of the queries [B, L], of the keys [B, M]); a query attends to keys of its
      own segment.
    causal: query l attends to keys m <= l.
    offset: the number of keys before the first query, such as a memory: query l is at
      position `offset` + l of the keys. The rules of `causal` and `window` compare positions.
    window: with `causal`, query l attends to the last `window` of these, l - window < m <= l
      (Child et al. 2019, "locally banded"). Without `causal`, it attends to |l - m| <= window // 2:
      128 means 64 keys before, itself and 64 after, as `local_attention` of ModernBERT (Warner et
      al. 2024) and `attention_window` of Longformer (Beltagy et al. 2020).
    step: a decoding step: the queries are one token a row, at its positions. Needs `causal` where
      there is a window.
    pattern: with `causal`, query l attends to the keys of a sparse pattern (Child et al. 2019).
    chunks: with `causal`, query l attends to the keys of two chunks of an order of the positions
      (Kitaev et al. 2020).
    ranks: int32 (of the queries [B, L], of the keys [B, M]), instead of `causal` and a window; a
      query attends to keys of a lower rank than its own, and to the key at its own position (Yang
      et al. 2019).

    Raises:
      ValueError: the window is below 1, a step has a window without `causal` or an offset, the
        offset is negative, there is a pattern or there are chunks without `causal`, or with a
        window or an offset, or there are ranks with any of these but an offset.
    """

    attention_mask_BM: jax.Array | None = None
    segment_ids: tuple[jax.Array, jax.Array] | None = None
    causal: bool = flax.struct.field(pytree_node=False, default=False)
    window: int | None = flax.struct.field(pytree_node=False, default=None)
    step: DecodingStep | None = None
    offset: int = flax.struct.field(pytree_node=False, default=0)
    pattern: SparsePattern | None = flax.struct.field(pytree_node=False, default=None)
    chunks: KeyChunks | None = None
    ranks: tuple[jax.Array, jax.Array] | None = None

    def __post_init__(self) -> None:
        is_plain = self.causal and self.window is None and not self.offset
        if not is_plain and (self.pattern or self.chunks is not None):
            name = "a sparse pattern" if self.pattern else "chunks of keys"
            raise ValueError(
                f"{name} with causal={self.causal}, window={self.window} and "
                f"offset={self.offset}: it needs causal=True, and neither of the others"
            )
        if self.pattern and self.pattern.kind == "local":
            raise ValueError("a local pattern: give the mask a window instead, without causal=True")
        if self.offset < 0 or (self.offset and self.step is not None):
            raise ValueError(
                f"an offset of {self.offset} keys before the first query: it must be at least 0, "
                "and 0 in a decoding step, whose position counts all keys"
            )
        is_limited = self.causal or self.window is not None or self.step is not None
        if self.ranks is not None and is_limited:
            raise ValueError(
                f"ranks with causal={self.causal}, window={self.window} and "
                f"{'a' if self.step is not None else 'no'} decoding step: the order of the ranks "
                "replaces the order of the positions"
            )
        if self.window is None:
            return
        if self.window < 1:
            raise ValueError(f"a window of {self.window} positions: it must be at least 1")
        if self.step is not None and not self.causal:
            raise ValueError(
                f"a window of {self.window} positions on both sides in a decoding step: the "
                "positions after the step's are not generated yet. Only a causal mask can decode "
                "(causal=True)"
            )

    @property
    def local_window_size(self) -> tuple[int | None, int | None]:
        """How many keys before and after its own position a query attends to; None: no limit."""
        if self.causal:
            return None if self.window is None else self.window - 1, 0
        return (None, None) if self.window is None else (self.window // 2, self.window // 2)

    def count_visible_pairs(self, L: int, M: int) -> int:
        """Return how many of the L x M pairs the causal rule and the window leave.

        Padding and segments differ from row to row, so they hide none here. A causal square of 4
        positions leaves 10 of 16. For a pattern, the first head counts. What chunks leave
        depends on the buckets, so all that are scored count.
        """
        if self.chunks is not None and self.step is None:
            return self.count_scored_pairs(L, M)
        if self.pattern:
            return int(self.pattern.count_visible_keys(L).sum())
        num_before, num_after = self.local_window_size
        positions_L = self.offset + np.arange(L)
        starts_L = 0 if num_before is None else np.maximum(positions_L - num_before, 0)
        ends_L = M if num_after is None else np.minimum(positions_L + num_after + 1, M)
        return int(np.maximum(np.zeros(L, int) + ends_L - starts_L, 0).sum())

    def find_block_pattern(self, L: int, M: int) -> SparsePattern | None:
        """Return the pattern that `attend` computes in blocks; None to score all pairs.

        It is the mask's, or a window whose blocks, a query's own and those next to it, are shorter
        than the row. A decoding step has one query, and no blocks.
        """
        if self.step is not None or L != M:
            return None
        half = self.window // 2 if self.window else 0
        if half and not self.causal and 3 * half < L and not self.offset:
            return make_band("local", half)
        if self.causal and self.window is not None and 2 * self.window < L and not self.offset:
            return make_band("banded", self.window)
        return self.pattern

    def count_scored_pairs(self, L: int, M: int) -> int:
        """Return how many pairs `attend` scores: all, or the blocks of a pattern."""
        if self.chunks is not None and self.step is None:
            return self.chunks.count_scored_pairs(L)
        pattern = self.find_block_pattern(L, M)
        return pattern.count_scored_pairs(L) if pattern else L * M

    def take_queries(self, start: int, stop: int) -> Mask:
        """Return the mask of the queries from `start` to `stop`, without a decoding step."""

        def take(pair: tuple[jax.Array, jax.Array] | None) -> tuple[jax.Array, jax.Array] | None:
            return None if pair is None else (pair[0][:, start:stop], pair[1])

        return self.replace(
            segment_ids=take(self.segment_ids),
            ranks=take(self.ranks),
            offset=self.offset + start,
        )

    def combine_segment_ids(self, B: int, L: int) -> tuple[jax.Array, jax.Array] | None:
        """Return ids (of the queries [B, L], of the keys [B, M]) for the padding and the segments.

        A query attends only to keys of the same id. None without padding and segments.
        """
        if self.attention_mask_BM is None:
            return self.segment_ids
        if self.segment_ids is None:
            query_ids_BL = jnp.ones((B, L), jnp.int32)
            key_ids_BM = jnp.ones(self.attention_mask_BM.shape, jnp.int32)
        else:
            query_ids_BL, key_ids_BM = self.segment_ids
        # No query has the id -1.
        return query_ids_BL, jnp.where(self.attention_mask_BM, key_ids_BM, -1)

    def make_dense(self, L: int, M: int, num_heads: int = 1) -> jax.Array | None:
        """Return the mask, bool, broadcastable to [B, H, L, M]; None where nothing is masked.

        num_heads: H, which a pattern may distinguish.

        Raises:
          ValueError: a decoding step's cache has a number of slots other than M.
        """
        if self.step is not None and self.step.num_slots != M:
            raise ValueError(
                f"a decoding step reads {self.step.num_slots} slots of a cache, not {M} keys; "
                "models.generation.cached_attention.apply_cached calls a model with its cache"
            )
        masks = []
        if self.attention_mask_BM is not None:
            masks.append(self.attention_mask_BM[:, None, None, :])
        if self.segment_ids is not None:
            query_segments_BL, key_segments_BM = self.segment_ids
            masks.append(query_segments_BL[:, None, :, None] == key_segments_BM[:, None, None, :])
        if self.causal:
            query_positions = (
                self.offset + np.arange(L) if self.step is None else self.step.position_B
            )
            distance = query_positions[:, None] - np.arange(M)  # [L, M], or [B, M] in a step
            is_visible = distance >= 0
            if self.window is not None:
                is_visible &= distance < self.window
            is_visible = jnp.asarray(is_visible)
            masks.append(is_visible[None, None] if self.step is None else is_visible[:, None, None])
            queries = query_positions[:, None]
            queries = queries[None, None] if self.step is None else queries[:, None, None]
            if self.chunks is not None and self.chunks.buckets_BHRL is None:
                masks.append(jnp.asarray(self.chunks.is_near(queries, np.arange(M))))
            if self.pattern:
                heads_H11 = np.arange(num_heads if self.pattern.subblocks > 1 else 1)[:, None, None]
                masks.append(jnp.asarray(self.pattern.is_visible(queries, np.arange(M), heads_H11)))
        elif self.window is not None:
            distance_LM = np.abs(self.offset + np.arange(L)[:, None] - np.arange(M))
            masks.append(jnp.asarray(distance_LM <= self.window // 2)[None, None])
        if self.ranks is not None:
            query_ranks_BL, key_ranks_BM = self.ranks
            is_own_LM = jnp.asarray(self.offset + np.arange(L)[:, None] == np.arange(M))
            is_before_BLM = key_ranks_BM[:, None, :] < query_ranks_BL[:, :, None]
            masks.append((is_before_BLM | is_own_LM)[:, None])
        return reduce(jnp.logical_and, masks) if masks else None


def make_band(kind: Literal["banded", "local"], stride: int) -> SparsePattern:
    """Return the pattern of a window, "banded" or "local"; models without a window import none."""
    from models.layers.block_sparse import SparsePattern

    return SparsePattern(kind, stride, part="first")


def make_padding_mask(
    attention_mask_BM: jax.Array, segment_ids_BM: jax.Array | None = None
) -> Mask:
    """Return an encoder's mask: a query attends to all tokens, or in a packed row to its own text.

    attention_mask_BM: bool, False on padding. segment_ids_BM: int32; None: one text a row.
    """
    return Mask(
        attention_mask_BM, None if segment_ids_BM is None else (segment_ids_BM, segment_ids_BM)
    )


def make_causal_mask(
    attention_mask_BM: jax.Array | None = None,
    segment_ids_BL: jax.Array | None = None,
    window: int | None = None,
    step: DecodingStep | None = None,
) -> Mask:
    """Return a decoder's mask: queries attend to their own and earlier positions of their text."""
    return Mask(
        attention_mask_BM,
        None if segment_ids_BL is None else (segment_ids_BL, segment_ids_BL),
        causal=True,
        window=window,
        step=step,
    )


def find_segment_starts(segment_ids: jax.Array) -> jax.Array:
    """Return where a text begins, bool [B, L], of the segment ids int32 [B, L] of a packed row."""
    return segment_ids != jnp.pad(segment_ids, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]


def make_position_ids(segment_ids: jax.Array) -> jax.Array:
    """Return each token's position in its own text, from 0, int32 [B, L]."""
    position_L = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
    return position_L - jax.lax.cummax(
        jnp.where(find_segment_starts(segment_ids), position_L, 0), axis=1
    )
