"""The least time that a compiled step can take: what it computes, moves through memory and sends, over what the chip does at best.

Matmuls, memory and the exchanges that are hidden behind them run side by side: the longest of the three counts. An exchange that nothing
hides comes on top. Latencies, vector units and everything else are left out, so a real step takes longer.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Seconds of one step on each chip, by what bounds it; None where the chip's figures are not published."""

    matmul: float
    memory: float
    hidden: float
    exposed: float

    @property
    def bound(self):
        """The least seconds of a step, as it is scheduled."""
        return max(self.matmul, self.memory, self.hidden) + self.exposed

    @property
    def by(self):
        """What the step waits for most."""
        parts = {
            "matmul": self.matmul,
            "memory": self.memory,
            "interconnect": self.hidden + self.exposed,
        }
        return max(parts, key=parts.__getitem__)


def roofline(flops, memory_bytes, exchanges, mesh, machine):
    """flops: of the whole step, recomputation included; memory_bytes: of one device; exchanges: [Collective]."""
    chip = machine.chip
    seconds = [(exchange_seconds(one, mesh, machine), one.overlapped) for one in exchanges]
    return Roofline(
        matmul=flops / mesh.size / chip.flops,
        memory=memory_bytes / chip.hbm_rate,
        hidden=sum(time for time, overlapped in seconds if overlapped),
        exposed=sum(time for time, overlapped in seconds if not overlapped),
    )


def exchange_seconds(one, mesh, machine):
    """Seconds that a `Collective` takes in one step, all its runs, over the links that its group of devices can use."""
    if one.between_slices:
        return (
            one.count * one.sent / machine.chip.network
        )  # each chip's part of its host's network cards
    rate = link_rate([mesh.devices.flat[place] for place in one.group], machine)
    return one.count * one.sent / rate if rate else 0.0


def link_rate(devices, machine):
    """Bytes/s that a chip can send to the others of its group: a link for each side of the slice along which they lie, two in a ring."""
    rate = 0.0
    for side, values in zip(machine.sides, zip(*(device.coords for device in devices))):
        seen = len(set(values))
        if seen > 1:
            closed = seen == side and side % machine.family.ring == 0
            rate += machine.chip.link * (2 if closed else 1)
    return rate
