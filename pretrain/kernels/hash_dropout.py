"""Dropout whose bits are a hash of (key, position).

They do not come from Threefry: dropout needs no secrecy, only the absence of patterns, and the
twenty rounds of Threefry take a tenth of a training step. The bit of a position depends on
the key and on the index in the global array, so a mesh does not change it. A function that computes
the rows of one device, inside `jax.shard_map`, adds the index of its first row. The backward pass
computes the bits again instead of saving them.

B batch
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from models.layers.dropout import KeyedDropout
from pretrain.mesh.sharding import BATCH

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


def make_bits(
    key: jax.Array, shape: tuple[int, ...], first_row: jax.Array | None = None
) -> jax.Array:
    """Return random uint32 of `shape`, hashes of the last axis' index and a hash of the others.

    The hash of the other axes is computed once per row, so that an element costs one `mix_bits`.

    Args:
      key: two uint32.
      first_row: uint32 scalar, added to the index of the first axis.
    """
    *rows, _ = shape
    row = jnp.zeros((*rows, 1), jnp.uint32)
    for axis, size in enumerate(rows):
        index = jax.lax.broadcasted_iota(jnp.uint32, (*rows, 1), axis)
        if axis == 0 and first_row is not None:
            index += first_row
        row = row * np.uint32(size) + index
    seed = mix_bits(mix_bits(row * GOLDEN + key[0]) ^ key[1])
    return mix_bits(jax.lax.broadcasted_iota(jnp.uint32, shape, len(rows)) * GOLDEN + seed)


def make_keep_mask(
    key: jax.Array, rate: float, shape: tuple[int, ...], first_row: jax.Array | None = None
) -> jax.Array:
    """Return bool of `shape`, True with probability 1 - rate (to within 2**-32)."""
    return make_bits(key, shape, first_row) >= np.uint32(min(round(rate * 2**32), 2**32 - 1))


def drop_by_hash(
    x: jax.Array, key: jax.Array, rate: float, shape: tuple[int, ...], by_row: bool = True
) -> jax.Array:
    """Return x / (1 - rate) where `make_keep_mask(key, rate, shape)` is True, else 0.

    The signature is as in `models.layers.ops.drop_values`. The batch is whole, so that `by_row`
    changes nothing.
    """
    return _drop(x, (key, None), rate, shape)


@dataclass(frozen=True)
class DropPart:
    """`drop_by_hash` for a part of the rows of the batch.

    Attributes:
      first_row: the index in the batch of the part's first row.
    """

    first_row: int

    def __call__(
        self, x: jax.Array, key: jax.Array, rate: float, shape: tuple[int, ...], by_row: bool = True
    ) -> jax.Array:
        """Return what `drop_by_hash` would for these rows."""
        return _drop(x, (key, jnp.uint32(self.first_row) if by_row else None), rate, shape)


def take_dropout_part(drop: KeyedDropout, first_row: int) -> KeyedDropout:
    """Return the dropout, by `drop_by_hash`, of the rows from `first_row` on."""
    return drop.replace(drop_fn=DropPart(first_row))


def drop_on_shard(
    x: jax.Array, key: jax.Array, rate: float, shape: tuple[int, ...], by_row: bool = True
) -> jax.Array:
    """Return what `drop_by_hash` would for these rows of the batch, inside `jax.shard_map`."""
    first_row = find_first_row(shape[0]).astype(jnp.uint32) if by_row else None
    return _drop(x, (key, first_row), rate, shape)


def keep_rows_on_shard(key: jax.Array, share: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return what `models.layers.ops.keep_rows` would for these rows of the batch.

    It draws for all rows, which are few, and takes its own.
    """
    num_rows = shape[0] * jax.lax.axis_size(BATCH[0])
    keep_mask_B = jax.random.bernoulli(key, share, (num_rows, *shape[1:]))
    return jax.lax.dynamic_slice_in_dim(keep_mask_B, find_first_row(shape[0]), shape[0])


def find_first_row(num_rows: int) -> jax.Array:
    """Return the index in the batch of the first of this device's rows, inside `jax.shard_map`.

    num_rows: of this device, and of every other.
    """
    return jax.lax.axis_index(BATCH[0]) * num_rows


# The key, and the index of the first row or None.
Draw = tuple[jax.Array, jax.Array | None]


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _drop(x: jax.Array, draw: Draw, rate: float, shape: tuple[int, ...]) -> jax.Array:
    key, first_row = draw
    return jnp.where(
        make_keep_mask(key, rate, shape, first_row),
        x * np.asarray(1 / (1 - rate), x.dtype),
        np.zeros((), x.dtype),
    )


def _drop_fwd(
    x: jax.Array, draw: Draw, rate: float, shape: tuple[int, ...]
) -> tuple[jax.Array, Draw]:
    return _drop(x, draw, rate, shape), draw


def _drop_bwd(
    rate: float, shape: tuple[int, ...], draw: Draw, gradient: jax.Array
) -> tuple[jax.Array, None]:
    return _drop(gradient, draw, rate, shape), None


_drop.defvjp(_drop_fwd, _drop_bwd)
