"""Dropout (Srivastava et al. 2014) and stochastic depth (Huang et al. 2016).

B batch
"""

from collections.abc import Callable

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from models.layers.ops import PLAIN, Ops


class KeyedDropout(flax.struct.PyTreeNode):
    """Dropout with a fixed key: a pure linear function, which a backward pass may recompute.

    key: two uint32.
    rate: the probability that an activation is zero.
    broadcast_dims: the axes along which one draw is broadcast.
    drop_fn: the operation `Ops.drop`.
    by_row: whether the first axis is the batch.
    """

    key: jax.Array
    rate: float = flax.struct.field(pytree_node=False)
    broadcast_dims: tuple[int, ...] = flax.struct.field(pytree_node=False)
    drop_fn: Callable[..., jax.Array] = flax.struct.field(pytree_node=False, default=PLAIN.drop)
    by_row: bool = flax.struct.field(pytree_node=False, default=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Return x with dropout, in its own shape and dtype."""
        if self.rate == 1:
            return jnp.zeros_like(x)
        shape = list(x.shape)
        for axis in self.broadcast_dims:
            shape[axis] = 1
        return self.drop_fn(x, self.key, self.rate, tuple(shape), self.by_row)


class Dropout(nn.Module):
    """Zero each activation with probability `rate`, and divide the others by 1 - rate.

    broadcast_dims: the axes along which one draw is broadcast.
    deterministic: True for no dropout; given here or in the call.
    Each call takes a new key from the stream "dropout": layers, steps and microbatches differ.
    """

    rate: float
    broadcast_dims: tuple[int, ...] = ()
    deterministic: bool | None = None
    ops: Ops = PLAIN

    @nn.compact
    def __call__(
        self, x: jax.Array, deterministic: bool | None = None, by_row: bool = True
    ) -> jax.Array:
        """Return x with dropout; x itself where `deterministic` or without a rate.

        by_row: False for an array that all rows of a batch share, such as a table of positions.
        """
        drop = self.bind_key(deterministic, by_row)
        return x if drop is None else drop(x)

    def bind_key(
        self, deterministic: bool | None = None, by_row: bool = True
    ) -> KeyedDropout | None:
        """Return the dropout of one call, with its own key; None where nothing is dropped."""
        if nn.merge_param("deterministic", self.deterministic, deterministic) or self.rate == 0:
            return None
        key = jax.random.key_data(self.make_rng("dropout")).reshape(-1)[-2:]
        return KeyedDropout(key, self.rate, self.broadcast_dims, self.ops.drop, by_row)


class PathDropout(nn.Module):
    """Drop a sublayer's output for whole rows (stochastic depth), rescaling the rest.

    A row then skips the sublayer (Huang et al. 2016, section 3). Each call takes a new key from the
    stream "dropout".
    """

    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x: jax.Array, rate: jax.Array) -> jax.Array:
        """Return x [B, ...] without the dropped rows; rate: float32 scalar, below 1."""
        shape_B = (x.shape[0], *(1,) * (x.ndim - 1))
        keep_mask_B = self.ops.keep_rows(self.make_rng("dropout"), 1 - rate, shape_B)
        return x * jnp.where(keep_mask_B, 1 / (1 - rate), 0).astype(x.dtype)
