"""The bits of `pretrain.kernels.hash_dropout` inside a kernel, for a tile of weights.

T queries of a tile
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from pretrain.kernels.hash_dropout import GOLDEN, mix_bits

SIGN = np.uint32(2**31)


def make_keep_tile(
    key: tuple[jax.Array, jax.Array],
    rate: float,
    first_row: jax.Array,
    first_key: int | jax.Array,
    shape: tuple[int, int],
) -> jax.Array:
    """Return bool of `shape`, [keys, T]: a tile of `hash_dropout.make_keep_mask`, transposed.

    Args:
      key: the two words of a key, int32 scalars.
      rate: the probability of False.
      first_row: int32 scalar, the number of the tile's first query among the queries of all heads
        and rows of the batch.
      first_key: the position of the tile's first key.
      shape: the number of keys and of queries of the tile.
    """
    row_T = make_iota((1, shape[1]), 1) + first_row.astype(jnp.uint32)
    words = [word.astype(jnp.uint32) for word in key]
    seed_T = mix_bits(mix_bits(row_T * GOLDEN + words[0]) ^ words[1])
    first = np.uint32(first_key) if isinstance(first_key, int) else first_key.astype(jnp.uint32)
    column = make_iota((shape[0], 1), 0) + first  # of each key
    bits = mix_bits(column * GOLDEN + seed_T)
    # A TPU's vector unit compares signed numbers: with the sign flipped, they are ordered like
    # unsigned ones.
    least = min(round(rate * 2**32), 2**32 - 1) - 2**31
    return jax.lax.bitcast_convert_type(bits ^ SIGN, jnp.int32) >= np.int32(least)


def make_iota(shape: tuple[int, int], axis: int) -> jax.Array:
    """Return the index along an axis, uint32 of `shape`."""
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis).astype(jnp.uint32)
