"""Dropout whose bits are a hash of (key, place).

They are no run of Threefry: dropout needs no secrecy, only no pattern, and Threefry's twenty rounds take a tenth of a training step (LOG.md).
A place's bit depends on the key and on where the place lies in the whole array, so a mesh does not change it. It is computed again in the
backward pass, and not kept.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

GOLDEN = np.uint32(0x9E3779B9)  # 2**32 / golden ratio: multiples of it are spread evenly


def mix(x):
    """Return a bijection of uint32 in which each bit of x turns half of the result's (Wellons 2018, "lowbias32", constants 7feb352d 846ca68b)."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def make_bits(key, shape):
    """Return uint32 of `shape`: one hash of the last axis' index for each hash of the others. key: two uint32.

    The rows' hash is computed once for all of a row, so that a place costs one `mix`.
    """
    *rows, columns = shape
    row = jnp.zeros((*rows, 1), jnp.uint32)
    for axis, size in enumerate(rows):
        row = row * np.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, (*rows, 1), axis)
    seed = mix(mix(row * GOLDEN + key[0]) ^ key[1])
    return mix(jax.lax.broadcasted_iota(jnp.uint32, shape, len(rows)) * GOLDEN + seed)


def make_mask(key, rate, shape):
    """Return bool of `shape`, True with probability 1 - rate (to within 2**-32)."""
    return make_bits(key, shape) >= np.uint32(min(round(rate * 2**32), 2**32 - 1))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def drop(x, key, rate, shape):
    """Return x / (1 - rate) where `make_mask(key, rate, shape)`, and 0 elsewhere, as `models.layers.ops.drop_values`."""
    return jnp.where(
        make_mask(key, rate, shape), x * np.asarray(1 / (1 - rate), x.dtype), np.zeros((), x.dtype)
    )


def _forwards(x, key, rate, shape):
    return drop(x, key, rate, shape), key


def _backwards(rate, shape, key, gradient):
    return drop(gradient, key, rate, shape), None


drop.defvjp(_forwards, _backwards)
