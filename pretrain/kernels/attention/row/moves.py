"""Moves of scores from the rows of distances to the rows of keys, inside the whole-row kernel.

Each query moves its column by its own number of rows, by one selection for each bit of the number.

T queries of a tile
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental.pallas import tpu as pltpu

from pretrain.kernels.attention.row.tiles import round_up

REGISTER_ROWS = 8  # rows of float32 in a register: a move by as many renames registers


def move_to_keys(scores: jax.Array, place_T: jax.Array, num_bits: int, num_keys: int) -> jax.Array:
    """Return the rows place ... place + num_keys - 1 of each column, [num_keys, T]."""
    for bit in reversed(range(num_bits)):
        rows = scores.shape[0]
        moves = jnp.broadcast_to(place_T & (1 << bit), scores.shape) != 0
        if bit >= 3:
            moves = moves[: rows - (1 << bit)]
            scores = jnp.where(moves, scores[1 << bit :], scores[: rows - (1 << bit)])
        else:
            scores = jnp.where(moves, pltpu.roll(scores, rows - (1 << bit), 0), scores)
    return scores[:num_keys]


def move_to_distances(d_scores: jax.Array, place_T: jax.Array, num_bits: int) -> jax.Array:
    """Return the transpose of `move_to_keys`: the rows of the window, zero where none is read."""
    keys, T = d_scores.shape
    rows = round_up(keys, REGISTER_ROWS) + REGISTER_ROWS
    d_scores = jnp.concatenate([d_scores, jnp.zeros((rows - keys, T), d_scores.dtype)])
    for bit in range(num_bits):
        step = 1 << bit
        if bit >= 3:
            zeros = jnp.zeros((step, T), d_scores.dtype)
            stays = jnp.concatenate([d_scores, zeros])
            moved = jnp.concatenate([zeros, d_scores])
        else:
            stays, moved = d_scores, pltpu.roll(d_scores, step, 0)
        moves = jnp.broadcast_to(place_T & step, stays.shape) != 0
        d_scores = jnp.where(moves, moved, stays)
    return d_scores
