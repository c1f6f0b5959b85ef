"""Fingerprints of arrays, computed where their shards are, to compare copies bit for bit."""

from typing import Any

import jax
import jax.numpy as jnp

from pretrain.mesh.sharding import format_path


def compute_fingerprint(x: jax.Array) -> jax.Array:
    """Return a uint32 scalar of the bits of an array.

    It is the sum of all elements, each multiplied by an odd number that depends on its position,
    modulo 2^32. Integer sums do not depend on their order, so the value is the same on every mesh.
    One flipped bit always changes it, since 2^k times an odd number is not 0 modulo 2^32.
    """
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    unsigned = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    bits = jax.lax.bitcast_convert_type(x, unsigned).astype(jnp.uint32)
    position = jnp.zeros(x.shape, jnp.uint32)
    for dim, size in enumerate(x.shape):
        index = jax.lax.broadcasted_iota(jnp.uint32, x.shape, dim)
        position = position * jnp.uint32(size % 2**32) + index
    return jnp.sum(bits * (position * jnp.uint32(2) + jnp.uint32(1)), dtype=jnp.uint32)


@jax.jit
def _compute_fingerprints(tree: Any) -> Any:
    return jax.tree.map(compute_fingerprint, tree)


def fingerprint_leaves(tree: Any) -> dict[str, list[Any]]:
    """Return {path: [dtype, shape, fingerprint]} of a tree of arrays."""
    fingerprints = jax.tree.leaves(jax.device_get(_compute_fingerprints(tree)))
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        format_path(keys): [str(leaf.dtype), list(leaf.shape), int(value)]
        for (keys, leaf), value in zip(leaves, fingerprints, strict=True)
    }
