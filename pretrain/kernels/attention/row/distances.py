"""The term of relative positions inside the whole-row kernel.

A tile's queries meet the distances of a window, [distances, T], and each query moves its column to
the rows of the keys (`moves`).

T queries of a tile   S queries in the order of the keys
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from models.layers.relative.distance_bias import DistanceBias
from pretrain.kernels.attention.row.blocks import (
    Head,
    Inputs,
    compare_ids,
    contract_first,
    contract_last,
)
from pretrain.kernels.attention.row.moves import (
    REGISTER_ROWS,
    move_to_distances,
    move_to_keys,
)
from pretrain.kernels.attention.row.spread_queries import (
    differentiate_windows,
    score_windows,
)
from pretrain.kernels.attention.row.tiles import (
    LANES,
    Settings,
    Square,
    Tile,
    round_up,
)


class Window(NamedTuple):
    """The distances that a tile of queries reads.

    Attributes:
      distances: a range of the padded distances, a slice of Python or, for a square, of Pallas.
      num_bits: a query reads from a row below 2 ** num_bits on.
      is_ordered: whether the queries follow one another.
    """

    distances: Any
    num_bits: int
    is_ordered: bool


def count_bits(settings: Settings) -> int:
    """Return the bits of the row from which any query reads; a register's rows have three."""
    return max((round_up(settings.num_ordered, settings.tile) - 1).bit_length(), 3)


def count_tile_bits(settings: Settings) -> int:
    """Return the same for the queries of a tile in order, in the window of the tile."""
    return max((settings.tile - 1).bit_length(), 3)


def find_last_tile(settings: Settings) -> int:
    """Return the first query of the last tile of queries in the order of the keys."""
    return (settings.num_ordered - 1) // settings.tile * settings.tile


def count_distances_of_tiles(num_keys: int, settings: Settings) -> int:
    """Return the number of padded distances that tiles of whole rows may read."""
    end = round_up(settings.num_ordered, settings.tile)
    most = max(end + 2 ** count_tile_bits(settings), 2 ** count_bits(settings))
    return round_up(round_up(num_keys, REGISTER_ROWS) + most, LANES)


def count_distances_of_squares(start_2S: np.ndarray, settings: Settings) -> int:
    """Return the number of padded distances that squares may read.

    start_2S: of `squares.list_squares`.
    """
    last = int((start_2S[1] - start_2S[0]).max()) + find_last_tile(settings)
    return round_up(last + settings.square + 2 ** count_tile_bits(settings), LANES)


def pad_distances(r_KR: jax.Array, length: int, settings: Settings) -> jax.Array:
    """Return the distances [H K, R] with columns of zeros, so that all windows are aligned.

    length: of the result, if there are not more.
    """
    before = round_up(settings.num_ordered, settings.tile) - settings.num_ordered
    return jnp.pad(r_KR, ((0, 0), (before, max(length - before - r_KR.shape[1], 0))))


def find_window(tile: Tile | Square, settings: Settings) -> Window:
    """Return what a tile or square reads of the padded distances."""
    if isinstance(tile, Square):
        first = tile.keys.start + find_last_tile(settings) - tile.queries.start
        num_bits = count_tile_bits(settings)
        rows = pl.ds(pl.multiple_of(first, LANES), tile.shape[0] + 2**num_bits)
        return Window(rows, num_bits, True)
    is_ordered = tile.queries.stop <= settings.num_ordered
    first, num_bits = tile.keys.start, count_bits(settings)
    if is_ordered:
        num_bits = count_tile_bits(settings)
        first += find_last_tile(settings) - tile.queries.start
    rows = round_up(tile.shape[0], REGISTER_ROWS) + 2**num_bits
    return Window(slice(first, first + rows), num_bits, is_ordered)


def find_first_rows(bias: DistanceBias, settings: Settings) -> jax.Array | None:
    """Return the row of the padded distances from which each query reads, int32 [B, 1, L].

    None where all queries are in order, and tiles alone tell it.
    """
    if bias.position_BP is None:
        return None
    S = bias.num_ordered
    order_BS = jnp.broadcast_to(jnp.arange(S), (len(bias.position_BP), S))
    positions = jnp.concatenate([order_BS, bias.position_BP], axis=1)
    return (round_up(S, settings.tile) - 1 - positions)[:, None]


def find_places(
    inputs: Inputs, window: Window, tile: Tile | Square, settings: Settings
) -> jax.Array:
    """Return the row of its window from which each query reads, int32 [1, T]."""
    if window.is_ordered:
        return settings.tile - 1 - jax.lax.broadcasted_iota(jnp.int32, (1, tile.shape[1]), 1)
    return inputs.first_rows[0, :, tile.queries]


def score_distances(
    inputs: Inputs, head: Head, tile: Tile | Square, settings: Settings
) -> jax.Array:
    """Return the bias of a tile or square, float32 [keys, T]."""
    if isinstance(tile, Square) and inputs.windows is not None:
        bias = score_windows(inputs, head, tile, settings) * settings.bias_scale
    else:
        window = find_window(tile, settings)
        q = inputs.distance_q[0, head.rows, tile.queries]
        scores = contract_first(inputs.distances[head.rows, window.distances], q)
        places = find_places(inputs, window, tile, settings)
        bias = move_to_keys(scores, places, window.num_bits, tile.shape[0]) * settings.bias_scale
    if inputs.text_scores is None:
        return bias
    text_T = inputs.text_scores[0, head.index, :, tile.queries]
    is_same = compare_ids(inputs.query_texts, inputs.key_texts, tile)
    return bias + jnp.where(is_same, 0.0, text_T)


def sum_text_gradient(inputs: Inputs, tile: Tile | Square, d_scores: jax.Array) -> jax.Array:
    """Return the gradient of the texts' term of a tile or square, float32 [1, T].

    d_scores: as in `differentiate_distances`.
    """
    is_same = compare_ids(inputs.query_texts, inputs.key_texts, tile)
    return jnp.where(is_same, 0.0, d_scores).sum(0, keepdims=True)


def differentiate_distances(
    inputs: Inputs,
    gradients: Inputs,
    head: Head,
    tile: Tile | Square,
    q: jax.Array,
    d_scores: jax.Array,
    settings: Settings,
) -> jax.Array:
    """Return the gradient of the queries of the distances, float32 [K, T]; add the distances'.

    Args:
      q: the queries of the distances, [K, T].
      d_scores: the gradient of the scores of the tile or square, float32 [keys, T].
    """
    if isinstance(tile, Square) and inputs.windows is not None:
        d_scores *= settings.bias_scale
        return differentiate_windows(inputs, gradients, head, tile, q, d_scores, settings)
    window = find_window(tile, settings)
    places = find_places(inputs, window, tile, settings)
    moved = move_to_distances(d_scores * settings.bias_scale, places, window.num_bits)
    moved = moved.astype(q.dtype)
    gradients.distances[head.rows, window.distances] += contract_last(q, moved)
    r = inputs.distances[head.rows, window.distances]
    return jnp.dot(r, moved, preferred_element_type=jnp.float32)
