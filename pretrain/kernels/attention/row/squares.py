"""The forward body of the whole-row kernel for a row that is computed in squares.

The scores of a long row are too many for a program. A program computes a square of them at a time
and corrects the sums over the keys before by the new largest score (Dao et al. 2022, algorithm 1).
The squares of the same queries follow one another.

L length of queries   M length of keys   K head width   T queries of a square
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from pretrain.kernels.attention.row.blocks import Head, Inputs, list_heads
from pretrain.kernels.attention.row.kernels import (
    LEAST,
    compute_scores,
    find_visible,
    make_keep,
)
from pretrain.kernels.attention.row.tiles import LANES, Settings, Square
from pretrain.kernels.pair_scopes import name_rare_branch


class Place(NamedTuple):
    """A square among the squares of its row, by bool scalars.

    Attributes:
      is_first: whether it is the first of its row.
      is_last: whether it is the last of its row.
      is_first_of_queries: whether no square of the same queries is before it.
      is_last_of_queries: whether none is after it.
    """

    is_first: jax.Array
    is_last: jax.Array
    is_first_of_queries: jax.Array
    is_last_of_queries: jax.Array


def list_squares(L: int, M: int, settings: Settings) -> np.ndarray:
    """Return the squares that a mask shows, by their first query and first key, int32 [2, squares].

    Queries to which `reach` shows no key have a square all the same, in which their output is
    written.
    """
    num_before, num_after = settings.reach
    starts = []
    for query in range(0, L, settings.tile):
        first, last = query + settings.offset, query + settings.tile - 1 + settings.offset
        begin = 0 if num_before is None else min(max(first - num_before, 0), M - 1)
        end = M if num_after is None else min(last + 1 + num_after, M)
        begin -= begin % settings.square
        starts += [(query, key) for key in range(begin, max(end, begin + 1), settings.square)]
    return np.asarray(starts, np.int32).T


def find_square(inputs: Inputs, settings: Settings) -> tuple[Square, Place]:
    """Return the square of this program."""
    number, count = pl.program_id(2), pl.num_programs(2)
    before, following = jnp.maximum(number - 1, 0), jnp.minimum(number + 1, count - 1)
    query, key = inputs.squares[0, number], inputs.squares[1, number]
    square = Square(
        pl.ds(pl.multiple_of(query, LANES), settings.tile),
        pl.ds(pl.multiple_of(key, LANES), settings.square),
    )
    is_first, is_last = number == 0, number == count - 1
    return square, Place(
        is_first,
        is_last,
        is_first | (inputs.squares[0, before] != query),
        is_last | (inputs.squares[0, following] != query),
    )


def attend_forward_in_squares(
    inputs: Inputs,
    out_ref: Any,
    log_total_ref: Any,
    largest_T: Any,
    total_T: Any,
    out_sum: Any,
    *,
    settings: Settings,
) -> None:
    """Write the output [1, K, L] of a head, and log(sum(exp(scores))) of each query, [1, 1, 1, L].

    The logarithm is infinite for a query that may read nothing.

    largest_T, total_T, out_sum: float32 [1, T], [1, T] and [K, T], memory of the program.
    """
    square, place = find_square(inputs, settings)
    (head,) = list_heads(inputs, settings)

    @pl.when(place.is_first_of_queries)
    def _() -> None:
        largest_T[...] = jnp.full_like(largest_T, LEAST)
        total_T[...], out_sum[...] = jnp.zeros_like(total_T), jnp.zeros_like(out_sum)

    visible = find_visible(inputs, square, settings)
    scores = compute_scores(inputs, head, square, visible, settings)
    new_largest_T = jnp.maximum(largest_T[...], scores.max(0, keepdims=True))
    # Until a query meets a visible key its powers are 1, and the first visible one makes them 0.
    correction_T = jnp.exp(largest_T[...] - new_largest_T)
    powers = jnp.exp(scores - new_largest_T)
    largest_T[...] = new_largest_T
    total_T[...] = total_T[...] * correction_T + powers.sum(0, keepdims=True)
    keep = make_keep(inputs, head, square, settings)
    powers = powers if keep is None else jnp.where(keep, powers, 0.0)
    v = inputs.v[0, head.rows, square.keys]
    out = jnp.dot(v, powers.astype(v.dtype), preferred_element_type=jnp.float32)
    out_sum[...] = out_sum[...] * correction_T + out

    @pl.when(place.is_last_of_queries)
    def _() -> None:
        log_total_T = largest_T[...] + jnp.log(total_T[...])
        log_total_T = jnp.where(largest_T[...] == LEAST, jnp.inf, log_total_T)
        log_total_ref[0, head.index, :, square.queries] = log_total_T
        out = out_sum[...] * (1 / (total_T[...] * (1 - settings.rate)))
        out_ref[0, head.rows, square.queries] = out.astype(out_ref.dtype)
        if visible is not None:
            _write_means(inputs, out_ref, head, square, log_total_T, settings)


def weigh_empty(
    inputs: Inputs, head: Head, square: Square, is_empty_T: jax.Array, settings: Settings
) -> jax.Array:
    """Return the weights of queries that may read nothing, float32 [keys, T]: 1 / M, as `attend`'s.

    The weights of other queries are 0.
    """
    keep = make_keep(inputs, head, square, settings)
    has_weight = jnp.broadcast_to(is_empty_T, square.shape)
    has_weight = has_weight if keep is None else has_weight & keep
    return jnp.where(has_weight, 1 / (settings.lengths[1] * (1 - settings.rate)), 0.0)


def move_square(square: Square, number: Any, settings: Settings) -> Square:
    """Return the square of the same queries and of the keys from `number * settings.square` on."""
    first = pl.multiple_of(number * settings.square, LANES)
    return square._replace(keys=pl.ds(first, settings.square))


def _write_means(
    inputs: Inputs,
    out_ref: Any,
    head: Head,
    square: Square,
    log_total_T: jax.Array,
    settings: Settings,
) -> None:
    """Write the outputs of queries that may read nothing."""
    is_empty_T = log_total_T == jnp.inf
    with name_rare_branch():

        @pl.when(jnp.max(log_total_T) == jnp.inf)
        def _() -> None:
            def add_keys(number: Any, out: jax.Array) -> jax.Array:
                part = move_square(square, number, settings)
                v = inputs.v[0, head.rows, part.keys]
                weights = weigh_empty(inputs, head, part, is_empty_T, settings)
                return out + jnp.dot(v, weights.astype(v.dtype), preferred_element_type=jnp.float32)

            others = out_ref[0, head.rows, square.queries].astype(jnp.float32)
            first = jnp.where(is_empty_T, 0.0, others)
            num_parts = inputs.k.shape[2] // settings.square
            out = jax.lax.fori_loop(0, num_parts, add_keys, first)
            out_ref[0, head.rows, square.queries] = out.astype(out_ref.dtype)
