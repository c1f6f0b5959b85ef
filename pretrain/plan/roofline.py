"""The shortest time of a compiled step: its operations, memory traffic and exchanges at peak rates.

Matmuls, elementwise operations, memory traffic and overlapped exchanges run concurrently, so the
longest of the four counts. Exchanges that nothing overlaps are added. Latencies and everything else
are ignored, so a real step takes longer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax

    from pretrain.plan.collectives import Collective
    from pretrain.plan.topology import Machine


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Seconds of one step on each chip, by resource.

    Attributes:
      matmul: time of the matmuls at the peak FLOP/s, with the empty parts of the matrix units.
      vector: time of the elementwise operations at the vector units' rate; 0 if it is unknown.
      memory: time of the HBM traffic at the peak bandwidth.
    """

    matmul: float
    vector: float
    memory: float
    hidden: float
    exposed: float

    @property
    def bound_seconds(self) -> float:
        """Return the lower bound of the step's seconds, as it is scheduled."""
        return max(self.matmul, self.vector, self.memory, self.hidden) + self.exposed

    @property
    def bottleneck(self) -> str:
        """Return the resource that takes the longest: matmul, vector, memory or interconnect."""
        seconds = {
            "matmul": self.matmul,
            "vector": self.vector,
            "memory": self.memory,
            "interconnect": self.hidden + self.exposed,
        }
        return max(seconds, key=seconds.__getitem__)


def format_share(share: float, digits: int = 0) -> str:
    """Return a share of the peak as text, without a figure above all of it.

    The papers' FLOPs exceed the peak where a kernel skips many of the masked pairs that they count.
    """
    return f"{share:.{digits}%}" if share <= 1 else "over 100%"


def compute_roofline(
    flops: float,
    vector_operations: float,
    memory_bytes: float,
    exchanges: Sequence[Collective],
    mesh: jax.sharding.Mesh,
    machine: Machine,
) -> Roofline:
    """Return the roofline of a step on a machine whose chip has published figures.

    Args:
      flops: FLOPs of the whole step on all devices, including recomputation, with the sizes of its
        matmuls rounded up to the matrix units' sizes.
      vector_operations: elementwise operations on one device.
      memory_bytes: bytes that one device moves through HBM.
    """
    chip = machine.chip
    assert chip is not None and chip.hbm_rate is not None, f"{machine.name} has no roofline"
    seconds = [
        (compute_exchange_seconds(exchange, mesh, machine), exchange.overlapped)
        for exchange in exchanges
    ]
    return Roofline(
        matmul=flops / mesh.size / chip.flops,
        vector=vector_operations / chip.vector_rate if chip.vector_rate else 0.0,
        memory=memory_bytes / chip.hbm_rate,
        hidden=sum(time for time, overlapped in seconds if overlapped),
        exposed=sum(time for time, overlapped in seconds if not overlapped),
    )


def compute_exchange_seconds(
    collective: Collective, mesh: jax.sharding.Mesh, machine: Machine
) -> float:
    """Return the seconds that a collective takes in one step, over all its executions.

    It runs at the rate of the links that its group of devices can use.
    """
    if collective.is_between_slices:
        assert machine.chip is not None and machine.chip.network is not None, machine.name
        # Each chip has an equal share of its host's network cards.
        return collective.count * collective.sent_bytes / machine.chip.network
    rate = compute_link_rate([mesh.devices.flat[index] for index in collective.group], machine)
    return collective.count * collective.sent_bytes / rate if rate else 0.0


def compute_link_rate(devices: Sequence[Any], machine: Machine) -> float:
    """Return the bytes/s that a chip can send to the others of its group.

    Each side of the slice along which the group extends contributes one link, or two if that side
    is closed to a ring.

    Args:
      devices: the group; each device has the `coords` of its chip.
    """
    chip, family = machine.chip, machine.family
    assert chip is not None and chip.link is not None and family is not None, machine.name
    rate = 0.0
    for side, coordinates in zip(machine.slice_shape, zip(*(device.coords for device in devices))):
        extent = len(set(coordinates))
        if extent > 1:
            is_ring = extent == side and side % family.ring_multiple == 0
            rate += chip.link * (2 if is_ring else 1)
    return rate
