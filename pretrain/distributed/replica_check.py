"""Whether devices that hold the same piece of the state hold the same bits of it: those of a device that computes wrong are named.

What is repeated on a mesh, wholly or along an axis, is never compared by JAX, and a checkpoint is made of one of its copies. Each
device takes the fingerprints of its own pieces; these few integers, not the pieces, go to all devices and from there to all hosts.
So a gradient that is altered behind its sum is seen, or a memory cell; one that is altered before the sum reaches all devices alike, and
looks like data (cf. silent data corruption: Dixit et al. 2021; Hochschild et al. 2021).

D devices of the mesh, in its order   L leaves of the state
"""

import collections
import socket

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from pretrain.distributed import processes
from pretrain.distributed.fingerprints import fingerprint
from pretrain.distributed.sharding import AXES, path_of


class Altered(RuntimeError):
    """Devices that must hold the same bits do not."""


class Replicas:
    """The check for states that are placed as `placed`, a tree of NamedShardings, says; every: steps between two, 0 for none."""

    def __init__(self, placed, mesh, every):
        self.mesh, self.every = mesh, every
        shardings, self.tree = jax.tree.flatten(placed)
        specs = [sharding.spec for sharding in shardings]
        self.names = [path_of(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(placed)]
        self.split = [_axes(spec) for spec in specs]
        self.shared = [
            i
            for i, axes in enumerate(self.split)
            if any(mesh.shape[axis] > 1 for axis in set(AXES) - axes)
        ]
        inner = jax.shard_map(
            _own_fingerprints,
            mesh=mesh,
            in_specs=([specs[i] for i in self.shared],),
            out_specs=P(),
            check_vma=False,
        )
        self.marks = jax.jit(inner)

    def due(self, step):
        return self.every > 0 and step % self.every == 0

    def check(self, state, step):
        """Compare now; waits for the devices. Raises Altered, which names them, the same in every process."""
        if not self.every or not self.shared:
            return
        leaves = self.tree.flatten_up_to(
            jax.block_until_ready(state)
        )  # simulated devices can starve each other in two programs at once
        marks_DL = np.asarray(self.marks([leaves[i] for i in self.shared]))
        odd = [
            (self.names[leaf], *group)
            for at, leaf in enumerate(self.shared)
            for group in self._groups(marks_DL[:, at], self.split[leaf])
        ]
        if odd:
            raise Altered(self._told(odd, step))

    def _groups(self, marks_D, split):
        """[(devices that differ, how many hold the piece)] for each piece of one leaf whose holders differ.

        The majority is right, where there is one; else all of them are named.
        """
        dims = tuple(self.mesh.shape[axis] for axis in AXES)
        order = [i for i, axis in enumerate(AXES) if axis in split] + [
            i for i, axis in enumerate(AXES) if axis not in split
        ]
        pieces = int(np.prod([dims[i] for i, axis in enumerate(AXES) if axis in split]))
        grid = marks_D.reshape(dims).transpose(order).reshape(pieces, -1)
        holders = np.arange(len(marks_D)).reshape(dims).transpose(order).reshape(pieces, -1)
        groups = []
        for marks, devices in zip(grid, holders, strict=True):
            (usual, count), *others = collections.Counter(marks.tolist()).most_common()
            if others:
                right = usual if count * 2 > len(marks) else None
                groups.append(
                    (
                        [
                            int(device)
                            for mark, device in zip(marks.tolist(), devices)
                            if mark != right
                        ],
                        len(marks),
                    )
                )
        return groups

    def _told(self, odd, step):
        """odd: [(leaf, devices that differ, how many hold the piece)]."""
        flat, (leaf, devices, holders) = self.mesh.devices.flat, odd[0]
        named = [
            f"device {flat[device].id} of {_host(flat[device].process_index)}"
            for device in sorted({one for row in odd for one in row[1]})
        ]
        more = len({row[0] for row in odd}) - 1
        what = leaf + (f" and {more} more" if more else "")
        if len(devices) < holders:
            told = f"{' and '.join(named)} computed or kept other bits of {what} than most of the {holders} devices that hold the same piece"
        else:
            told = f"{' and '.join(named)} hold different bits of the same piece of {what}; which of them is wrong cannot be told"
        return f"after step {step:,}: {told}. Nothing of it is saved; give the same words again, without a device that is named again"


def _axes(spec):
    """The mesh axes that a PartitionSpec splits over, as a set."""
    return {
        axis
        for part in spec
        if part is not None
        for axis in (part if isinstance(part, tuple) else (part,))
    }


def _own_fingerprints(pieces):
    """uint32 [D, L]: of the pieces on each device, as all devices see them."""
    own_L = jnp.stack([fingerprint(piece) for piece in pieces])
    return jax.lax.all_gather(own_L, AXES)


def _host(process):
    return (
        processes.host_of(process) if jax.process_count() > 1 else socket.gethostname()
    ) or f"process {process}"
