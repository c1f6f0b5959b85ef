"""Dropout (Srivastava et al. 2014): each activation is zero with probability `rate`, and the others grow so that the mean stays."""

from collections.abc import Callable

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from models.layers.ops import PLAIN, Ops


class Drop(flax.struct.PyTreeNode):
    """Dropout whose key is drawn already: a pure linear function, which a backward pass may compute again."""

    key: jax.Array  # two uint32
    rate: float = flax.struct.field(pytree_node=False)
    shared: tuple[int, ...] = flax.struct.field(pytree_node=False)
    function: Callable = flax.struct.field(pytree_node=False, default=PLAIN.drop)

    def __call__(self, x):
        if self.rate == 1:
            return jnp.zeros_like(x)
        shape = list(x.shape)
        for axis in self.shared:
            shape[axis] = 1
        return self.function(x, self.key, self.rate, tuple(shape))


class Dropout(nn.Module):
    """Drop with probability `rate`. The values along the axes `shared` are dropped together.

    Each call draws a key from the stream "dropout": layers, steps and micro-batches differ.
    """

    rate: float
    shared: tuple[int, ...] = ()
    deterministic: bool | None = None  # here or in the call
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x, deterministic=None):
        drop = self.draw(deterministic)
        return x if drop is None else drop(x)

    def draw(self, deterministic=None):
        """Return the `Drop` of one call, or None where nothing is dropped."""
        if nn.merge_param("deterministic", self.deterministic, deterministic) or self.rate == 0:
            return None
        key = jax.random.key_data(self.make_rng("dropout")).reshape(-1)[-2:]
        return Drop(key, self.rate, self.shared, self.ops.drop)
