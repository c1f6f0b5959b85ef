"""Sparse factorizations of causal attention (Child et al. 2019, sections 4.2 and 4.3), and windows.

A `SparsePattern` is the definition, a rule for each pair of positions; `attend_in_blocks` computes
the same without an array of all pairs.

B batch   L row length   H heads   K head width   N blocks of queries of a row   M blocks of
keys   S stride, the positions of a block   W keys near a query   G keys far from a query
"""

import dataclasses
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Part = Literal["first", "second", "both"]
KINDS_AND_PARTS = (
    *((kind, part) for kind in ("strided", "fixed") for part in ("first", "second", "both")),
    ("banded", "first"),
    ("local", "first"),
)


@dataclasses.dataclass(frozen=True)
class SparsePattern:
    """Which positions j the query at position i attends to, with the stride S:

    | kind    | first pattern       | second pattern                                               |
    |---------|---------------------|--------------------------------------------------------------|
    | strided | i - S <= j <= i     | (i - j) mod S = 0                                            |
    | fixed   | j div S = i div S   | j is one of `summary` positions at the end of its block of S |
    | banded  | i - S < j <= i      | none                                                         |
    | local   | i - S <= j <= i + S | none                                                         |

    All but "local" are causal, j <= i.

    Any j <= i reaches i through the first pattern and then the second one. The second fixed pattern
    also has j = i: the paper leaves open what a query reads before the end of the first block.

    kind: "strided" suits rows that have a period, such as images, "fixed" suits text. "banded", the
      locally banded attention of GPT-3, and "local", a window on both sides (Warner et al. 2024,
      section 2.1.2), are no factorizations: they have the first pattern alone.
    stride: S.
    summary: c of the paper; used by "fixed" alone.
    subblocks: head h reads the summary that is h mod `subblocks` times `summary` before the end of
      the block, because distinct subblocks were "preferable" (section 4.3). One: all heads alike.
    part: the first pattern, the second, or their union, a merged head (section 5.1).

    Raises:
      ValueError: an unknown kind or part, a size below 1, or subblocks that exceed the stride.
    """

    kind: Literal["strided", "fixed", "banded", "local"]
    stride: int
    summary: int = 1
    subblocks: int = 1
    part: Part = "both"

    def __post_init__(self) -> None:
        if (self.kind, self.part) not in KINDS_AND_PARTS:
            raise ValueError(
                f"a sparse pattern {self.kind!r}, {self.part!r}: the pattern is strided or fixed, "
                "its part first, second or both; or it is banded or local, with the first alone"
            )
        if min(self.stride, self.summary, self.subblocks) < 1:
            raise ValueError(
                f"a sparse pattern with stride={self.stride}, summary={self.summary}, subblocks="
                f"{self.subblocks}: each must be at least 1"
            )
        if self.kind == "fixed" and self.summary * self.subblocks > self.stride:
            raise ValueError(
                f"{self.subblocks} subblocks of {self.summary} positions do not fit into a block "
                f"of {self.stride}: lower model.subblocks or model.summary, or raise model.stride"
            )

    def is_visible(self, i: Any, j: Any, head: Any = 0) -> Any:
        """Return whether query i attends to key j in a head; integers or arrays that broadcast."""
        if self.kind == "local":
            return abs(i - j) <= self.stride
        first, second = self._is_in_first(i, j), self._is_in_second(i, j, head)
        visible = {"first": first, "second": second, "both": first | second}[self.part]
        return visible & (j <= i)

    def _is_in_first(self, i: Any, j: Any) -> Any:
        if self.kind == "strided":
            return i - j <= self.stride
        if self.kind == "banded":
            return i - j < self.stride
        return i // self.stride == j // self.stride

    def _is_in_second(self, i: Any, j: Any, head: Any) -> Any:
        if self.kind == "strided":
            return (i - j) % self.stride == 0
        before_end = self.stride - 1 - j % self.stride  # positions of j's block after it
        return (before_end // self.summary == head % self.subblocks) | (i == j)

    def count_visible_keys(self, L: int) -> np.ndarray:
        """Return how many keys each query of a row of L attends to in the first head, int [L]."""
        i = np.arange(L)
        block, place = np.divmod(i, self.stride)
        if self.kind == "banded":
            return np.minimum(i, self.stride - 1) + 1
        if self.kind == "local":
            return np.minimum(i, self.stride) + 1 + np.minimum(L - 1 - i, self.stride)
        if self.kind == "strided":
            first, second = np.minimum(i, self.stride) + 1, block + 1
            shared = 1 + np.minimum(block, 1)  # i and i - S
        else:
            shared = np.maximum(place + 1 - (self.stride - self.summary), 1)  # of its own block
            first, second = place + 1, block * self.summary + shared
        return {"first": first, "second": second, "both": first + second - shared}[self.part]

    def count_scored_pairs(self, L: int) -> int:
        """Return how many pairs of queries and keys `attend_in_blocks` scores in a row of L."""
        num_blocks = -(-L // self.stride)
        if self.kind == "local":
            return num_blocks * self.stride * 3 * self.stride
        if self.kind != "fixed":
            near, far = 2 * self.stride, num_blocks
            keys = {"first": near, "second": far, "both": near + far}[self.part]
        else:
            keys = self.stride + (0 if self.part == "first" else num_blocks * self.summary)
        return num_blocks * self.stride * keys

    def attend(
        self,
        q_BLHK: jax.Array,
        k_BLHK: jax.Array,
        v_BLHK: jax.Array,
        *,
        segment_ids: tuple[jax.Array, jax.Array] | None = None,
        scale: float | None = None,
        cap: Callable[[jax.Array], jax.Array] | None = None,
        drop: Callable[[jax.Array], jax.Array] | None = None,
    ) -> jax.Array:
        """Return `attend_in_blocks` of this pattern."""
        return attend_in_blocks(
            q_BLHK,
            k_BLHK,
            v_BLHK,
            pattern=self,
            segment_ids=segment_ids,
            scale=scale,
            cap=cap,
            drop=drop,
        )


class KeyGroup(NamedTuple):
    """Keys that `attend_in_blocks` scores with one matmul.

    letters: the axes of the gathered keys: b, h, k; w of the keys; n or s if they belong to the
      queries of one block, or of one place in the blocks.
    gather: takes x [B, N, S, H, ...] and returns it at these keys.
    mask_HNSW: bool, broadcastable, True where a query attends to a key.
    """

    letters: str
    gather: Callable[[jax.Array], jax.Array]
    mask_HNSW: jax.Array


def attend_in_blocks(
    q_BLHK: jax.Array,
    k_BLHK: jax.Array,
    v_BLHK: jax.Array,
    *,
    pattern: SparsePattern,
    segment_ids: tuple[jax.Array, jax.Array] | None = None,
    scale: float | None = None,
    cap: Callable[[jax.Array], jax.Array] | None = None,
    drop: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Return the attention of a sparse pattern, [B, L, H, K] in the dtype of v.

    A query is scored with keys near it, and with some keys of each block. With a stride near
    sqrt(L), the number of each grows as sqrt(L).

    Args:
      q_BLHK: the queries.
      k_BLHK: the keys.
      v_BLHK: the values; their K may be another.
      pattern: which keys a query attends to. L need not be a multiple of its stride: positions are
        added at the end, which no query of the row reads.
      segment_ids: int32 [B, L] of the queries and of the keys; a query attends to its own segment.
      scale: factor of the scores; K ** -0.5 by default.
      cap: bounds the scaled scores; None: nothing does.
      drop: a `models.layers.dropout.KeyedDropout` of the attention weights, or None.
    """
    B, L, H, K = q_BLHK.shape
    factor: float = K**-0.5 if scale is None else scale
    q_BNSHK, k_BNSHK, v_BNSHK = (_split_blocks(x, pattern) for x in (q_BLHK, k_BLHK, v_BLHK))
    groups = _list_key_groups(pattern, L, H)
    scores = []
    for letters, gather, mask in groups:
        scores_BHNSW = jnp.einsum(
            f"bnshk,{letters}->bhnsw",
            q_BNSHK,
            gather(k_BNSHK),
            preferred_element_type=jnp.float32,
        )
        if segment_ids is not None:
            query_ids, key_ids = (_split_blocks(ids[..., None], pattern) for ids in segment_ids)
            mask = mask & (
                _align(query_ids, "bnsh") == _align(gather(key_ids), letters.removesuffix("k"))
            )
        scores_BHNSW *= factor
        if cap is not None:
            scores_BHNSW = cap(scores_BHNSW)
        scores.append(jnp.where(mask, scores_BHNSW, jnp.finfo(jnp.float32).min))
    weights = jax.nn.softmax(jnp.concatenate(scores, axis=-1)).astype(v_BLHK.dtype)
    if drop is not None:
        weights = drop(weights)
    parts = jnp.split(weights, [scores[0].shape[-1]], axis=-1)
    outputs = [
        jnp.einsum(f"bhnsw,{letters}->bnshk", part, gather(v_BNSHK))
        for part, (letters, gather, _) in zip(parts, groups)
    ]
    out_BNSHK = reduce(jnp.add, outputs)
    return out_BNSHK.reshape(B, -1, H, v_BLHK.shape[-1])[:, :L]


def _split_blocks(x: jax.Array, pattern: SparsePattern) -> jax.Array:
    """Return x [B, L, ...] as [B, N, S, ...], with zeros after its end."""
    B, L, *rest = x.shape
    padding = [(0, 0), (0, -L % pattern.stride), *[(0, 0)] * len(rest)]
    return jnp.pad(x, padding).reshape(B, -1, pattern.stride, *rest)


def _align(x: jax.Array, letters: str) -> jax.Array:
    """Return x, whose axes have these letters, with the axes bhnsw, those it lacks of size 1."""
    present = [letter for letter in "bhnsw" if letter in letters]
    ordered = x.transpose([letters.index(letter) for letter in present])
    return jnp.expand_dims(
        ordered, [i for i, letter in enumerate("bhnsw") if letter not in present]
    )


def _list_key_groups(pattern: SparsePattern, L: int, H: int) -> list[KeyGroup]:
    """Return the near keys and the far keys that the queries of a row attend to."""
    if pattern.kind == "local":
        return [_make_local_near(pattern, L)]
    N = -(-L // pattern.stride)
    near, far = (
        (_make_fixed_near, _make_fixed_far)
        if pattern.kind == "fixed"
        else (_make_strided_near, _make_strided_far)
    )
    if pattern.part == "first":
        return [near(pattern, N, H)]
    if pattern.part == "second" and pattern.kind == "strided":
        return [far(pattern, N, H)]
    return [near(pattern, N, H), far(pattern, N, H)]


def _make_strided_near(pattern: SparsePattern, N: int, H: int) -> KeyGroup:
    """Return a query's own block and the block before, of which it reads the last S positions."""
    S = pattern.stride
    i_S1, j_W = S + np.arange(S)[:, None], np.arange(2 * S)
    exists_N1W = (np.arange(N)[:, None, None] > 0) | (j_W >= S)
    mask_NSW = jnp.asarray(pattern.is_visible(i_S1, j_W)) & exists_N1W
    return KeyGroup("bnwhk", _join_block_before, mask_NSW)


def _make_local_near(pattern: SparsePattern, L: int) -> KeyGroup:
    """Return a query's own block, the block before and the block after."""
    S, N = pattern.stride, -(-L // pattern.stride)
    starts_N11 = S * np.arange(N)[:, None, None]
    i_NS1 = starts_N11 + np.arange(S)[:, None]
    j_N1W = starts_N11 - S + np.arange(3 * S)
    exists_N1W = (j_N1W >= 0) & (j_N1W < L)
    mask_NSW = np.asarray(pattern.is_visible(i_NS1, j_N1W)) & exists_N1W
    return KeyGroup("bnwhk", _join_blocks_around, jnp.asarray(mask_NSW))


def _make_strided_far(pattern: SparsePattern, N: int, H: int) -> KeyGroup:
    """Return the keys at a query's place in each block; the last two may be among those near."""
    lag = 0 if pattern.part == "second" else 2
    is_past_NM = np.arange(N)[:, None] - np.arange(N) >= lag
    return KeyGroup("bwshk", lambda x_BNSHK: x_BNSHK, jnp.asarray(is_past_NM[:, None]))


def _make_fixed_near(pattern: SparsePattern, N: int, H: int) -> KeyGroup:
    """Return a query's own block."""
    i_S = np.arange(pattern.stride)
    heads = range(H if pattern.part == "second" else 1)
    visible_HSW = np.stack([pattern.is_visible(i_S[:, None], i_S, head) for head in heads])
    return KeyGroup("bnwhk", lambda x_BNSHK: x_BNSHK, jnp.asarray(visible_HSW[:, None]))


def _make_fixed_far(pattern: SparsePattern, N: int, H: int) -> KeyGroup:
    """Return the summaries of the earlier blocks."""
    is_past_NM = np.arange(N)[:, None] > np.arange(N)
    is_past_NG = np.repeat(is_past_NM, pattern.summary, axis=1)
    gather = partial(_gather_summaries, pattern, H)
    return KeyGroup("bwhk", gather, jnp.asarray(is_past_NG[:, None]))


def _join_block_before(x_BNSHK: jax.Array) -> jax.Array:
    """Return each block after the one before it, [B, N, 2 S, H, ...]; the first after zeros."""
    before_BNSHK = jnp.pad(x_BNSHK, ((0, 0), (1, 0)) + ((0, 0),) * (x_BNSHK.ndim - 2))[:, :-1]
    return jnp.concatenate([before_BNSHK, x_BNSHK], axis=2)


def _join_blocks_around(x_BNSHK: jax.Array) -> jax.Array:
    """Return each block between the two around it, [B, N, 3 S, H, ...]; zeros beyond the ends."""
    padded = jnp.pad(x_BNSHK, ((0, 0), (1, 1)) + ((0, 0),) * (x_BNSHK.ndim - 2))
    return jnp.concatenate([padded[:, :-2], x_BNSHK, padded[:, 2:]], axis=2)


def _gather_summaries(pattern: SparsePattern, H: int, x_BNSHK: jax.Array) -> jax.Array:
    """Return the summaries of all blocks, [B, N c, H, ...], of each head its own subblock."""
    groups_H = np.arange(H).reshape(-1, *[1] * (x_BNSHK.ndim - 4)) % pattern.subblocks
    summaries = jnp.zeros(())
    for group in range(pattern.subblocks):
        end = pattern.stride - group * pattern.summary
        block = x_BNSHK[:, :, end - pattern.summary : end]
        summaries = block if group == 0 else jnp.where(groups_H == group, block, summaries)
    B, _, _, *rest = summaries.shape
    return summaries.reshape(B, -1, *rest)
