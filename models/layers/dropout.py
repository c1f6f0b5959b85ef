"""Dropout (Srivastava et al. 2014): each activation is zero with probability `rate`, and the others grow so that the mean stays.

The bits are a hash of (key, place), not a run of Threefry: they need no secrecy, only no pattern, and Threefry's twenty rounds took a tenth of a
training step (LOG.md). A place's bit depends on the key and on where the place lies in the whole array, so a mesh does not change it; it is
computed again in the backward pass rather than kept.
"""

from functools import partial

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

GOLDEN = np.uint32(0x9E3779B9)  # 2**32 / golden ratio: multiples of it are spread evenly


def mix(x):
    """A bijection of uint32 in which each bit of the input turns half of the output's (Wellons 2018, "lowbias32", constants 7feb352d 846ca68b)."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def bits(key, shape):
    """uint32 of `shape`, one hash of the last axis' index for each hash of the others; key: two uint32.

    The rows' hash goes round once for all of a row, so that a place costs one `mix`.
    """
    *rows, columns = shape
    row = jnp.zeros((*rows, 1), jnp.uint32)
    for axis, size in enumerate(rows):
        row = row * np.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, (*rows, 1), axis)
    seed = mix(mix(row * GOLDEN + key[0]) ^ key[1])
    return mix(jax.lax.broadcasted_iota(jnp.uint32, shape, len(rows)) * GOLDEN + seed)


def kept(key, rate, shape):
    """bool of `shape`, True with probability 1 - rate (to within 2**-32)."""
    return bits(key, shape) >= np.uint32(min(round(rate * 2**32), 2**32 - 1))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def drop(x, key, rate, shape):
    """x where `kept(key, rate, shape)`, divided by 1 - rate, and 0 elsewhere; shape: that of x, or with 1 where an axis shares its bits."""
    return jnp.where(
        kept(key, rate, shape), x * np.asarray(1 / (1 - rate), x.dtype), np.zeros((), x.dtype)
    )


def _forwards(x, key, rate, shape):
    return drop(x, key, rate, shape), key


def _backwards(rate, shape, key, gradient):
    return drop(gradient, key, rate, shape), None


drop.defvjp(_forwards, _backwards)


class Drop(flax.struct.PyTreeNode):
    """Dropout with a key that is drawn already: a pure function, linear and its own transpose, which a backward pass may do again."""

    key: jax.Array  # two uint32
    rate: float = flax.struct.field(pytree_node=False)
    shared: tuple[int, ...] = flax.struct.field(pytree_node=False)

    def __call__(self, x):
        if self.rate == 1:
            return jnp.zeros_like(x)
        shape = list(x.shape)
        for axis in self.shared:
            shape[axis] = 1
        return drop(x, self.key, self.rate, tuple(shape))


class Dropout(nn.Module):
    """Drop with probability `rate`; the axes `shared` have one bit for all of their length.

    Each call draws a key from the stream "dropout", whose two words are the hash's seed: layers, steps and micro-batches differ.
    """

    rate: float
    shared: tuple[int, ...] = ()
    deterministic: bool | None = None  # here or in the call

    @nn.compact
    def __call__(self, x, deterministic=None):
        drop = self.draw(deterministic)
        return x if drop is None else drop(x)

    def draw(self, deterministic=None):
        """The `Drop` of one call, or None where nothing is dropped."""
        if nn.merge_param("deterministic", self.deterministic, deterministic) or self.rate == 0:
            return None
        return Drop(
            jax.random.key_data(self.make_rng("dropout")).reshape(-1)[-2:], self.rate, self.shared
        )
