"""The time that no program of a training step falls below on a machine, whatever it computes when.

Only what the model and the optimizer need counts: no rematerialization, no activations, no second
copy of anything.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np

from pretrain.mesh.sharding import format_path
from pretrain.plan.collectives import BETWEEN_SLICES, Collective
from pretrain.plan.roofline import compute_exchange_seconds

if TYPE_CHECKING:
    from pretrain.plan.topology import Machine
    from pretrain.training.program import Program

ROW_AXES = ("data", "fsdp")


@dataclasses.dataclass(frozen=True)
class Floor:
    """Seconds of one step on each chip that each resource needs at its peak rate.

    Attributes:
      matmul: of the model's matmuls, without the pairs that masks hide.
      memory: to read and write parameters and optimizer state once, and to read the batch and the
        parameters that are not trained.
      exchange: to sum the gradients of the devices that share parameters, in the compute dtype.
    """

    matmul: float
    memory: float
    exchange: float

    @property
    def seconds(self) -> float:
        """Return the time of a step in which all three overlap."""
        return max(self.matmul, self.memory, self.exchange)


def compute_floor(
    visible_flops: int,
    held_bytes: dict[str, float],
    gradient_bytes: float,
    mesh: jax.sharding.Mesh,
    machine: Machine,
    frozen_bytes: float = 0,
) -> Floor:
    """Return the floor of a step on a machine whose chip has published figures.

    Args:
      visible_flops: matmul FLOPs that the model needs on all devices, without hidden pairs.
      held_bytes: {parameters, optimizer, batch} on each device.
      gradient_bytes: of what a device sums with those that have other rows.
      frozen_bytes: of the parameters on each device that are not trained.
    """
    chip = machine.chip
    assert chip is not None and chip.hbm_rate is not None, f"{machine.name} has no floor"
    state = held_bytes["parameters"] + held_bytes["optimizer"]
    return Floor(
        matmul=visible_flops / mesh.size / chip.flops,
        memory=(2 * state - frozen_bytes + held_bytes["batch"]) / chip.hbm_rate,
        exchange=max(
            (
                compute_exchange_seconds(exchange, mesh, machine)
                for exchange in _list_gradient_sums(gradient_bytes, mesh, machine)
            ),
            default=0.0,
        ),
    )


def _list_gradient_sums(size: float, mesh: jax.sharding.Mesh, machine: Machine) -> list[Collective]:
    """Return the sums of gradients of `size` bytes: within a slice, and between slices."""
    places = np.arange(mesh.size).reshape(mesh.devices.shape)
    places = places[tuple(slice(None) if axis in ROW_AXES else 0 for axis in mesh.axis_names)]
    places = places.reshape(machine.num_slices, -1)  # slices are the outer part of `data`
    num_within = places.shape[1]
    groups = [("all-reduce", size, places[0])]
    groups += [("all-reduce" + BETWEEN_SLICES, size / num_within, places[:, 0])]
    return [
        Collective(kind, num_bytes, "", tuple(group.tolist()), ROW_AXES, 1, True, "gradients", ())
        for kind, num_bytes, group in groups
        if len(group) > 1
    ]


def count_gradient_bytes(
    program: Program, compute_dtype: str, is_frozen: Callable[[str], bool] = lambda path: False
) -> tuple[float, int]:
    """Return the bytes of the gradients that devices with other rows sum, and of what has none.

    Args:
      is_frozen: (path of a parameter) -> whether it is not trained.

    Returns:
      (bytes of gradients in `compute_dtype`, bytes on each device of the parameters without any).
    """
    itemsize = jax.numpy.dtype(compute_dtype).itemsize
    leaves = jax.tree_util.tree_leaves_with_path(program.abstract_state.params)
    shardings = jax.tree.leaves(program.state_shardings.params)
    gradient_bytes, frozen_bytes = 0.0, 0
    for (keys, leaf), sharding in zip(leaves, shardings, strict=True):
        if is_frozen(format_path(keys)):
            frozen_bytes += math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
            continue
        num_shards = sharding.mesh.shape["model"] if "model" in sharding.spec else 1
        gradient_bytes += math.prod(leaf.shape) * itemsize / num_shards
    return gradient_bytes, frozen_bytes
