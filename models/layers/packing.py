"""Packed rows, which have several texts one after the other: where texts begin, and position ids.

B batch   L length
"""

import jax
import jax.numpy as jnp

START = 0  # the id that a decoder reads before the first label


def find_segment_starts(segment_ids: jax.Array) -> jax.Array:
    """Return where a text begins, bool [B, L], of the segment ids int32 [B, L] of a packed row."""
    return segment_ids != jnp.pad(segment_ids, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]


def make_position_ids(segment_ids: jax.Array) -> jax.Array:
    """Return each token's position in its own text, from 0, int32 [B, L]."""
    position_L = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
    return position_L - jax.lax.cummax(
        jnp.where(find_segment_starts(segment_ids), position_L, 0), axis=1
    )


def shift_right(
    labels: jax.Array, segment_ids: jax.Array | None = None, start: int = START
) -> jax.Array:
    """Return the decoder's input [B, L]: `start`, then all but the last label, in each segment."""
    shifted_BL = jnp.pad(labels, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
    if segment_ids is None:
        return shifted_BL
    return jnp.where(find_segment_starts(segment_ids), start, shifted_BL)
