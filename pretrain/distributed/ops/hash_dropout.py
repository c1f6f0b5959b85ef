"""Dropout whose bits are a hash of (key, position).

They do not come from Threefry: dropout needs no secrecy, only the absence of patterns, and the
twenty rounds of Threefry take a tenth of a training step (LOG.md). The bit of a position depends on
the key and on the index in the global array, so a mesh does not change it. The backward pass
computes the bits again instead of saving them.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

GOLDEN = np.uint32(0x9E3779B9)  # 2**32 / golden ratio: multiples of it are spread evenly


def mix_bits(x: jax.Array) -> jax.Array:
    """Return a bijection of uint32 in which each bit of x flips half of the bits of the result.

    It is lowbias32 with the constants 7feb352d and 846ca68b (Wellons 2018).
    """
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def make_bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return random uint32 of `shape`, hashes of the last axis' index and a hash of the others.

    The hash of the other axes is computed once per row, so that an element costs one `mix_bits`.

    key: two uint32.
    """
    *rows, columns = shape
    row = jnp.zeros((*rows, 1), jnp.uint32)
    for axis, size in enumerate(rows):
        row = row * np.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, (*rows, 1), axis)
    seed = mix_bits(mix_bits(row * GOLDEN + key[0]) ^ key[1])
    return mix_bits(jax.lax.broadcasted_iota(jnp.uint32, shape, len(rows)) * GOLDEN + seed)


def make_keep_mask(key: jax.Array, rate: float, shape: tuple[int, ...]) -> jax.Array:
    """Return bool of `shape`, True with probability 1 - rate (to within 2**-32)."""
    return make_bits(key, shape) >= np.uint32(min(round(rate * 2**32), 2**32 - 1))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def drop_by_hash(x: jax.Array, key: jax.Array, rate: float, shape: tuple[int, ...]) -> jax.Array:
    """Return x / (1 - rate) where `make_keep_mask(key, rate, shape)` is True, else 0.

    The signature is that of `models.layers.ops.drop_values`.
    """
    return jnp.where(
        make_keep_mask(key, rate, shape),
        x * np.asarray(1 / (1 - rate), x.dtype),
        np.zeros((), x.dtype),
    )


def _drop_fwd(
    x: jax.Array, key: jax.Array, rate: float, shape: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    return drop_by_hash(x, key, rate, shape), key


def _drop_bwd(
    rate: float, shape: tuple[int, ...], key: jax.Array, gradient: jax.Array
) -> tuple[jax.Array, None]:
    return drop_by_hash(gradient, key, rate, shape), None


drop_by_hash.defvjp(_drop_fwd, _drop_bwd)
