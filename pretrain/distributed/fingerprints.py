"""A number for the bits of an array, computed where the array lies: what was written, read or held twice is compared by it."""

import jax
import jax.numpy as jnp

from pretrain.distributed.sharding import path_of


def fingerprint(x):
    """A uint32 over the bits of an array: their sum, each element weighted by an odd number that depends on its place, modulo 2^32.

    Integer sums do not depend on their order, so the value is the same on every mesh; it is computed where the shards are. One
    flipped bit always changes it, since 2^k times an odd number is not 0 modulo 2^32.
    """
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)
    place = jnp.zeros(x.shape, jnp.uint32)
    for dim, size in enumerate(x.shape):
        place = place * jnp.uint32(size % 2**32) + jax.lax.broadcasted_iota(
            jnp.uint32, x.shape, dim
        )
    return jnp.sum(bits * (place * jnp.uint32(2) + jnp.uint32(1)), dtype=jnp.uint32)


@jax.jit
def _fingerprints(tree):
    return jax.tree.map(fingerprint, tree)


def leaves_of(tree):
    """{path: [dtype, shape, fingerprint]} of a tree of arrays."""
    marks = jax.device_get(_fingerprints(tree))
    rows = zip(jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(marks), strict=True)
    return {
        path_of(keys): [str(leaf.dtype), list(leaf.shape), int(mark)] for (keys, leaf), mark in rows
    }
