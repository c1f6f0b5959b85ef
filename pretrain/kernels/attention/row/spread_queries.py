"""The term of relative positions of queries in no order, such as XLNet's query stream, in squares.

The distances that a tile of such queries reads depend on their positions. Those are read in windows
of `Settings.span` places. The first window begins at the least place of the tile. What it does not
cover is read in further ones, so positions may be any. In rising order, a tile of 128 that spans
fewer positions than a window needs no other.

B batch   P queries   N tiles of all rows   T queries of a tile   W windows   K head width
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.row.blocks import (
    Head,
    Inputs,
    contract_first,
    contract_last,
)
from pretrain.kernels.attention.row.moves import (
    REGISTER_ROWS,
    move_to_distances,
    move_to_keys,
)
from pretrain.kernels.attention.row.tiles import LANES, Settings, Square, round_up
from pretrain.kernels.pair_scopes import name_rare_branch


def count_places(bias: DistanceBias) -> int:
    """Return from how many of the distances on a query may read, one for each position."""
    return len(bias.r_RHK) - bias.num_keys + 1


def count_distances_of_windows(bias: DistanceBias, settings: Settings) -> int:
    """Return the number of padded distances that windows may read."""
    num_keys = round_up(settings.lengths[1], settings.square)
    return round_up(count_places(bias) + num_keys + settings.span, LANES)


def find_windows(bias: DistanceBias, settings: Settings) -> tuple[jax.Array, jax.Array]:
    """Return what queries in no order read of the distances.

    Returns:
      int32 [B, 1, P], the distance from which each query reads, and int32 [1 + W, N], how many
      windows each tile has and where they begin.
    """
    assert bias.position_BP is not None and not bias.num_ordered, "all queries are in no order"
    assert settings.span % settings.step == 0, "a window reaches to where the next may begin"
    num_places, tile = count_places(bias), settings.tile
    place_BP = jnp.clip(-1 - bias.position_BP, 0, num_places - 1)
    place_NT = jnp.pad(place_BP, ((0, 0), (0, -place_BP.shape[1] % tile)), constant_values=-1)
    place_NT = place_NT.reshape(-1, tile)
    is_left_NT, starts, counts_N = place_NT >= 0, [], 0
    for _ in range(-(-num_places // settings.span)):
        has_window_N = is_left_NT.any(1)
        least_N = jnp.where(is_left_NT, place_NT, num_places).min(1)
        start_N = jnp.where(has_window_N, least_N // settings.step * settings.step, 0)
        is_left_NT &= place_NT >= start_N[:, None] + settings.span
        starts.append(start_N)
        counts_N += has_window_N.astype(jnp.int32)
    return place_BP[:, None], jnp.stack([counts_N, *starts])


class Reading(NamedTuple):
    """What a square reads of the distances in one window.

    Attributes:
      place_T: the row of the window from which each query reads, int32 [1, T]. Only the lowest bits
        count.
      has_window_T: 1.0 where the window is the query's, else 0.0, [1, T].
    """

    distances: Any
    place_T: jax.Array
    has_window_T: jax.Array


def _find_reading(
    inputs: Inputs, tile_number: jax.Array, number: Any, square: Square, settings: Settings
) -> Reading:
    """Return what a square reads in a window.

    Args:
      tile_number: the tile's number among the tiles of all rows.
      number: of the window, from 1.
    """
    start = inputs.windows[number, tile_number]
    first = pl.multiple_of(square.keys.start + start, LANES)
    num_rows = round_up(square.shape[0], REGISTER_ROWS) + settings.span
    place_T = inputs.first_rows[0, :, square.queries] - start
    has_window_T = (place_T >= 0) & (place_T < settings.span)
    return Reading(pl.ds(first, num_rows), place_T, jnp.where(has_window_T, 1.0, 0.0))


def _sum_windows(
    inputs: Inputs, square: Square, settings: Settings, compute_part: Callable[..., jax.Array]
) -> jax.Array:
    """Return the sum of `compute_part` over what a square reads in each of its windows."""
    tiles_of_row = inputs.q.shape[2] // settings.tile
    tile_of_row = jax.lax.div(square.queries.start, settings.tile)
    tile_number = pl.program_id(1) * tiles_of_row + tile_of_row
    count = inputs.windows[0, tile_number]

    def add_part(number: Any, total: jax.Array) -> jax.Array:
        return total + compute_part(_find_reading(inputs, tile_number, number, square, settings))

    first = compute_part(_find_reading(inputs, tile_number, 1, square, settings))
    with name_rare_branch():
        return jax.lax.cond(
            count > 1, lambda: jax.lax.fori_loop(2, count + 1, add_part, first), lambda: first
        )


def score_windows(inputs: Inputs, head: Head, square: Square, settings: Settings) -> jax.Array:
    """Return the products of queries and distances of a square, float32 [keys, T]."""

    def score_part(reading: Reading) -> jax.Array:
        q = inputs.distance_q[0, head.rows, square.queries]
        q = _clear_others(q, reading)
        scores = contract_first(inputs.distances[head.rows, reading.distances], q)
        return move_to_keys(scores, reading.place_T, _count_bits(settings), square.shape[0])

    return _sum_windows(inputs, square, settings, score_part)


def differentiate_windows(
    inputs: Inputs,
    gradients: Inputs,
    head: Head,
    square: Square,
    q: jax.Array,
    d_scores: jax.Array,
    settings: Settings,
) -> jax.Array:
    """Return the gradient of the queries of the distances, float32 [K, T]; add the distances'.

    Arguments: as of `distances.differentiate_distances`; d_scores: of what `score_windows` returns.
    """

    def differentiate_part(reading: Reading) -> jax.Array:
        moved = move_to_distances(d_scores, reading.place_T, _count_bits(settings)).astype(q.dtype)
        d_distances = contract_last(_clear_others(q, reading), moved)
        gradients.distances[head.rows, reading.distances] += d_distances
        r = inputs.distances[head.rows, reading.distances]
        return jnp.dot(r, moved, preferred_element_type=jnp.float32) * reading.has_window_T

    return _sum_windows(inputs, square, settings, differentiate_part)


def _clear_others(q: jax.Array, reading: Reading) -> jax.Array:
    """Return the queries [K, T], with zeros instead of the queries that another window has."""
    return (q.astype(jnp.float32) * reading.has_window_T).astype(q.dtype)


def _count_bits(settings: Settings) -> int:
    """Return the bits of a row of a window."""
    return (settings.span - 1).bit_length()
