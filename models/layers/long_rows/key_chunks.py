"""Causal attention in chunks of sorted positions (Kitaev et al. 2020, section 2).

Positions are put in an order, which is cut into chunks; a query attends to keys of its own chunk
and of the chunk before it. In the order of a row that is local attention; in an order of buckets a
query attends to keys that are near it as vectors, wherever in the row they are.

B batch   L row length   H heads   K head width   R rounds   P padded length   N chunks of all
rounds   C positions of a chunk   W keys of two chunks   X = R P
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

# As in Hugging Face transformers: a query without other keys attends to itself.
OWN_SCORE, HIDDEN_SCORE = -1e5, -1e9
PADDING_SEGMENT = jnp.iinfo(jnp.int32).max  # sorted after all tokens


class KeyChunks(flax.struct.PyTreeNode):
    """An order of the positions of a row, and the chunks into which it is cut.

    size: C.
    multiple: a row is padded to a multiple of this number of positions, itself a multiple of C.
    buckets_BHRL: int32, the bucket of each position in each round: a round is in the order of
      (text, bucket, position), and the rounds follow each other in a circle. None: one round in the
      order of the row.
    avoids_self: whether a query attends to itself only where it may attend to nothing else.
    """

    size: int = flax.struct.field(pytree_node=False)
    multiple: int = flax.struct.field(pytree_node=False)
    buckets_BHRL: jax.Array | None = None
    avoids_self: bool = flax.struct.field(pytree_node=False, default=False)

    def is_near(self, i: Any, j: Any) -> Any:
        """Return whether position j is in the chunk of i or in the one before, in a row's order."""
        return j // self.size >= i // self.size - 1

    def count_scored_pairs(self, L: int) -> int:
        """Return how many pairs of queries and keys `attend_in_chunks` scores in a row of L."""
        rounds = 1 if self.buckets_BHRL is None else self.buckets_BHRL.shape[2]
        return rounds * -(-L // self.multiple) * self.multiple * 2 * self.size

    def attend(
        self,
        q_BLHK: jax.Array,
        k_BLHK: jax.Array,
        v_BLHK: jax.Array,
        *,
        segment_ids: tuple[jax.Array, jax.Array] | None = None,
        scale: float | None = None,
        drop: Callable[[jax.Array], jax.Array] | None = None,
    ) -> jax.Array:
        """Return `attend_in_chunks` of these chunks."""
        return attend_in_chunks(
            q_BLHK,
            k_BLHK,
            v_BLHK,
            chunks=self,
            segment_ids=segment_ids,
            scale=scale,
            drop=drop,
        )


def sort_positions(
    buckets_BHRP: jax.Array, segment_ids_BP: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Return the order of the positions of each round, and the place of each position in it.

    Both are int32 [B, H, R, P]. The order is by text, then by bucket, then by position.
    """
    order = jnp.argsort(buckets_BHRP, axis=-1, stable=True)
    if segment_ids_BP is not None:
        ids_BHRP = jnp.broadcast_to(segment_ids_BP[:, None, None], order.shape)
        by_text = jnp.argsort(jnp.take_along_axis(ids_BHRP, order, axis=-1), axis=-1, stable=True)
        order = jnp.take_along_axis(order, by_text, axis=-1)
    return order, jnp.argsort(order, axis=-1)


def pair_with_previous(x_BHNC: jax.Array) -> jax.Array:
    """Return the entries of each chunk's predecessor, then its own, [B, H, N, W, ...].

    The predecessor of the first chunk is the last one.
    """
    return jnp.concatenate([jnp.roll(x_BHNC, 1, axis=2), x_BHNC], axis=3)


def average_chunks(
    q_BHNCK: jax.Array,
    k_BHNCK: jax.Array,
    v_BHNCK: jax.Array,
    positions_BHNC: jax.Array | None,
    ids_BHNC: jax.Array | None,
    *,
    scale: float,
    avoids_self: bool,
    drop: Callable[[jax.Array], jax.Array] | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the average of the values that each query attends to, and log(sum(exp(scores))).

    Args:
      q_BHNCK: the queries of the chunks; N is at least 2.
      k_BHNCK: their keys.
      v_BHNCK: their values.
      positions_BHNC: int32, the positions of the tokens in the row; None: in the order of the row.
      ids_BHNC: int32, the texts of the tokens; None: one text.
      scale: factor of the scores.
      avoids_self: whether a query attends to itself only where it may attend to nothing else.
      drop: dropout of the weights [B, H, N, C, W], or None.

    Returns:
      [B, H, N, C, K] in the dtype of v, and float32 [B, H, N, C].
    """
    if positions_BHNC is None:
        N, C = q_BHNCK.shape[2:4]
        positions_BHNC = jnp.arange(N * C).reshape(1, 1, N, C)
    scores_BHNCW = scale * jnp.einsum(
        "bhnck,bhnwk->bhncw",
        q_BHNCK,
        pair_with_previous(k_BHNCK),
        preferred_element_type=jnp.float32,
    )
    scores_BHNCW = hide_keys(scores_BHNCW, positions_BHNC, ids_BHNC, avoids_self)
    totals_BHNC1 = jax.nn.logsumexp(scores_BHNCW, axis=-1, keepdims=True)
    weights_BHNCW = jnp.exp(scores_BHNCW - totals_BHNC1).astype(v_BHNCK.dtype)
    if drop is not None:
        weights_BHNCW = drop(weights_BHNCW)
    out_BHNCK = jnp.einsum("bhncw,bhnwk->bhnck", weights_BHNCW, pair_with_previous(v_BHNCK))
    return out_BHNCK, totals_BHNC1[..., 0]


def attend_in_chunks(
    q_BLHK: jax.Array,
    k_BLHK: jax.Array,
    v_BLHK: jax.Array,
    *,
    chunks: KeyChunks,
    segment_ids: tuple[jax.Array, jax.Array] | None = None,
    scale: float | None = None,
    drop: Callable[[jax.Array], jax.Array] | None = None,
    average: Callable[..., tuple[jax.Array, jax.Array]] = average_chunks,
) -> jax.Array:
    """Return causal attention to the keys of two chunks, [B, L, H, K] in the dtype of v.

    The time is linear in L. The output of a round is weighted by the sum of exponentials that its
    softmax divides by (equation 6; a key counts in each round in which the query attends to it).

    Args:
      q_BLHK: the queries.
      k_BLHK: the keys.
      v_BLHK: the values; their K may be another.
      chunks: the order. L need not be a multiple of their size: positions are added at the end.
      segment_ids: int32 [B, L] of the queries and of the keys, which are the same; a query attends
        to its own segment.
      scale: factor of the scores; K ** -0.5 by default.
      drop: a `models.layers.dropout.KeyedDropout` of the attention weights, or None.
      average: a function with the signature of `average_chunks`.
    """
    B, L, H, K = q_BLHK.shape
    C, P = chunks.size, -(-L // chunks.multiple) * chunks.multiple
    factor: float = K**-0.5 if scale is None else scale
    pad = partial(_pad_row, length=P)
    ids_BP = None if segment_ids is None else pad(segment_ids[0], value=PADDING_SEGMENT)
    if ids_BP is None and P > L:
        ids_BP = jnp.broadcast_to(jnp.where(jnp.arange(P) < L, 0, PADDING_SEGMENT), (B, P))
    if chunks.buckets_BHRL is None:
        places, sort, positions_BHNC = None, _split_row, None
    else:
        buckets_BHRP = jnp.moveaxis(pad(jnp.moveaxis(chunks.buckets_BHRL, -1, 1)), 1, -1)
        order, places = sort_positions(buckets_BHRP, ids_BP)
        sort, positions_BHNC = partial(_sort_row, order_BHRP=order), order.reshape(B, H, -1, C)
    ids_BHNC = None
    if ids_BP is not None:
        ids_BHNC = sort(jnp.broadcast_to(ids_BP[:, None, :, None], (B, H, P, 1)), C)[..., 0]
    q_BHNCK, k_BHNCK, v_BHNCK = (sort(pad(x).swapaxes(1, 2), C) for x in (q_BLHK, k_BLHK, v_BLHK))
    out_BHNCK, totals_BHNC = average(
        q_BHNCK,
        k_BHNCK,
        v_BHNCK,
        positions_BHNC,
        ids_BHNC,
        scale=factor,
        avoids_self=chunks.avoids_self,
        drop=drop,
    )
    out_BHRPK = out_BHNCK.reshape(B, H, -1, P, out_BHNCK.shape[-1])
    if places is not None:
        out_BHRPK = weigh_rounds(out_BHRPK, totals_BHNC.reshape(B, H, -1, P), places)
    return out_BHRPK.sum(2)[:, :, :L].swapaxes(1, 2)


def hide_keys(
    scores_BHNCW: jax.Array,
    positions_BHNC: jax.Array,
    ids_BHNC: jax.Array | None,
    avoids_self: bool,
) -> jax.Array:
    """Return the scores; replace the scores of later positions, other texts and the query itself.

    positions_BHNC: of the tokens in the chunks. ids_BHNC: of their texts; None: one text.
    """
    queries, keys = positions_BHNC[..., None], pair_with_previous(positions_BHNC)[..., None, :]
    visible = queries >= keys
    if ids_BHNC is not None:
        visible &= ids_BHNC[..., None] == pair_with_previous(ids_BHNC)[..., None, :]
    scores_BHNCW = jnp.where(visible, scores_BHNCW, HIDDEN_SCORE)
    return jnp.where(queries == keys, OWN_SCORE, scores_BHNCW) if avoids_self else scores_BHNCW


def weigh_rounds(out_BHRPK: jax.Array, totals_BHRP: jax.Array, places_BHRP: jax.Array) -> jax.Array:
    """Return the outputs of the rounds in the order of the row, each times its share of the sum.

    totals_BHRP: the logarithm of the sum of exponentials of each query, in the order of the rounds.
    """
    out_BHRPK = jnp.take_along_axis(out_BHRPK, places_BHRP[..., None], axis=3)
    totals_BHRP = jnp.take_along_axis(totals_BHRP, places_BHRP, axis=3)
    # As transformers, not by a softmax: near OWN_SCORE, float32 has steps of 2^-7, and the shares
    # of a query that only sees itself add up to 1 within 0.4 %.
    shares_BHRP = jnp.exp(totals_BHRP - jax.nn.logsumexp(totals_BHRP, axis=2, keepdims=True))
    return out_BHRPK * shares_BHRP[..., None].astype(out_BHRPK.dtype)


def _pad_row(x_BL: jax.Array, length: int, value: int = 0) -> jax.Array:
    """Return x [B, L, ...] with `value` after the row, up to `length` positions."""
    padding = [(0, 0), (0, length - x_BL.shape[1])] + [(0, 0)] * (x_BL.ndim - 2)
    return jnp.pad(x_BL, padding, constant_values=value)


def _split_row(x_BHPK: jax.Array, size: int) -> jax.Array:
    """Return the chunks [B, H, N, C, K] of a row in its own order."""
    B, H, P, K = x_BHPK.shape
    return x_BHPK.reshape(B, H, P // size, size, K)


def _sort_row(x_BHPK: jax.Array, size: int, *, order_BHRP: jax.Array) -> jax.Array:
    """Return the chunks [B, H, N, C, K] of a row in the orders of all rounds."""
    B, H, P, K = x_BHPK.shape
    order_BHX1 = order_BHRP.reshape(B, H, -1, 1)
    return jnp.take_along_axis(x_BHPK, order_BHX1, axis=2).reshape(B, H, -1, size, K)
