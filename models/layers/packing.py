"""Several texts side by side in one row, each numbered on its own: where they begin, and each token's place in its own.

B batch   L length
"""

import jax
import jax.numpy as jnp


def begins(segment_ids):
    """Where a text begins, of the number of the text that each token belongs to: bool [B, L]."""
    return segment_ids != jnp.pad(segment_ids, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]


def places(segment_ids):
    """The place of each token in its own text, from 0: int32 [B, L]."""
    place_L = jnp.arange(segment_ids.shape[1], dtype=jnp.int32)
    return place_L - jax.lax.cummax(jnp.where(begins(segment_ids), place_L, 0), axis=1)
