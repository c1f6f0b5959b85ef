"""Fingerprints of arrays, and the check that copies of a shard of the state have the same bits.

JAX never compares the copies of replicated values, and a checkpoint is made from one of the copies.
Each device computes the fingerprints of its own shards; these few integers, not the shards, are
gathered on all devices and from there on all hosts. This detects a gradient that was altered after
its sum, or a memory cell. A gradient that was altered before the sum reaches all devices equally
and looks like data (silent data corruption: Dixit et al. 2021; Hochschild et al. 2021).

D devices of the mesh, in its order   L leaves of the state
"""

from __future__ import annotations

import collections
import socket
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pretrain.mesh.sharding import AXES, format_path
from pretrain.processes import processes


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


class ReplicaMismatch(RuntimeError):
    """Devices that must hold the same bits do not."""


class ReplicaCheck:
    """Compares the copies of replicated shards of states on a mesh."""

    def __init__(self, state_shardings: Any, mesh: Mesh, every: int) -> None:
        """Compile nothing yet."""
        self.mesh, self.every = mesh, every
        shardings, self.tree = jax.tree.flatten(state_shardings)
        specs = [sharding.spec for sharding in shardings]
        self.leaf_paths = [
            format_path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(state_shardings)
        ]
        self.split_axes = [_list_axes(spec) for spec in specs]
        self.shared_leaves = [
            i
            for i, axes in enumerate(self.split_axes)
            if any(mesh.shape[axis] > 1 for axis in set(AXES) - axes)
        ]
        self.compute_fingerprints = jax.jit(
            jax.shard_map(
                _gather_fingerprints,
                mesh=mesh,
                in_specs=([specs[i] for i in self.shared_leaves],),
                out_specs=P(),
                check_vma=False,
            )
        )

    def is_due(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0

    def check(self, state: Any, step: int) -> None:
        """Wait for the devices and compare their copies.

        Raises:
          ReplicaMismatch: copies differ. The error names the devices; all processes raise the same.
        """
        if not self.every or not self.shared_leaves:
            return
        # The step must finish: simulated devices can starve each other in two programs at a time.
        leaves = self.tree.flatten_up_to(jax.block_until_ready(state))
        fingerprints_DL = np.asarray(
            self.compute_fingerprints([leaves[i] for i in self.shared_leaves])
        )
        outliers = [
            (self.leaf_paths[leaf], *group)
            for column, leaf in enumerate(self.shared_leaves)
            for group in self._find_outliers(fingerprints_DL[:, column], self.split_axes[leaf])
        ]
        if outliers:
            raise ReplicaMismatch(self._describe_mismatch(outliers, step))

    def _find_outliers(
        self, fingerprints_D: np.ndarray, split: set[str]
    ) -> list[tuple[list[int], int]]:
        """Return (devices that differ, number of copies) for each shard whose copies differ.

        The majority of the copies is right, if there is one; else all devices are named.

        Args:
          split: the mesh axes that the leaf is sharded over.
        """
        dims = tuple(self.mesh.shape[axis] for axis in AXES)
        split_dims = [i for i, axis in enumerate(AXES) if axis in split]
        order = split_dims + [i for i, axis in enumerate(AXES) if axis not in split]
        num_shards = int(np.prod([dims[i] for i in split_dims]))
        copies = fingerprints_D.reshape(dims).transpose(order).reshape(num_shards, -1)
        holders = np.arange(self.mesh.size).reshape(dims).transpose(order).reshape(num_shards, -1)
        groups = []
        for values, devices in zip(copies, holders, strict=True):
            (usual, count), *others = collections.Counter(values.tolist()).most_common()
            if others:
                right = usual if count * 2 > len(values) else None
                differing = [
                    int(device) for value, device in zip(values.tolist(), devices) if value != right
                ]
                groups.append((differing, len(values)))
        return groups

    def _describe_mismatch(self, outliers: list[tuple[str, list[int], int]], step: int) -> str:
        """Return the error message. outliers: (leaf, devices that differ, number of copies)."""
        flat, (leaf, devices, num_copies) = self.mesh.devices.flat, outliers[0]
        names = " and ".join(
            f"device {flat[device].id} of {_describe_host(flat[device].process_index)}"
            for device in sorted({device for row in outliers for device in row[1]})
        )
        num_more = len({row[0] for row in outliers}) - 1
        values = leaf + (f" and {num_more} more" if num_more else "")
        if len(devices) < num_copies:
            finding = (
                f"{names} computed or stored other bits of {values} than most of the {num_copies} "
                "devices that hold the same shard"
            )
        else:
            finding = (
                f"{names} hold different bits of the same shard of {values}; it is unknown which "
                "of them is wrong"
            )
        return (
            f"after step {step:,}: {finding}. This state is not saved. Repeat the same command, "
            "without a device that is named again"
        )


def _list_axes(spec: P) -> set[str]:
    """Return the mesh axes that a PartitionSpec shards over."""
    return {
        axis
        for axes in spec
        if axes is not None
        for axis in (axes if isinstance(axes, tuple) else (axes,))
    }


def _gather_fingerprints(shards: list[jax.Array]) -> jax.Array:
    """Return uint32 [D, L], the fingerprints of the shards on each device, on all devices."""
    own_L = jnp.stack([compute_fingerprint(shard) for shard in shards])
    return jax.lax.all_gather(own_L, AXES)


def _describe_host(process: int) -> str:
    return (
        processes.get_host_name(process) if jax.process_count() > 1 else socket.gethostname()
    ) or f"process {process}"
