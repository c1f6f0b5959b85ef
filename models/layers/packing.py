"""Several texts side by side in one row, each numbered on its own: where they begin, and each token's place in its own.

B batch   L length
"""

import jax
import jax.numpy as jnp


def begins(pieces_BL):
    """Where a text begins, of the number of the text that each token belongs to: bool [B, L]."""
    return pieces_BL != jnp.pad(pieces_BL, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]


def places(pieces_BL):
    """The place of each token in its own text, from 0: int32 [B, L]."""
    place_L = jnp.arange(pieces_BL.shape[1], dtype=jnp.int32)
    return place_L - jax.lax.cummax(jnp.where(begins(pieces_BL), place_L, 0), axis=1)
