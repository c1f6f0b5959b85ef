"""The memory of the devices of a mesh."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from pretrain.host.host_memory import find_host_memory
from pretrain.processes import processes
from pretrain.processes.exchange import TIMEOUT, exchange_values
from pretrain.training.accelerators import CHIPS

GIB = 2**30


class DeviceMemory(NamedTuple):
    """The bytes of memory of one device.

    Attributes:
      available: what a program can have there now.
      name: the device, and whose share of a host's memory it has.
    """

    total: int
    available: int
    name: str


def find_device_memory(device: Any) -> DeviceMemory | None:
    """Return the memory of one local device, or None if it is unknown.

    An accelerator reports what XLA may allocate there; one that does not has the published size of
    CHIPS. The CPU devices of this process share the host's memory.
    """
    if device.platform == "cpu":
        host, count = find_host_memory(), jax.local_device_count()
        if host is None:
            return None
        share = f", one of {count} that share its memory" if count > 1 else ""
        name = f"{socket.gethostname()} ({device.device_kind}{share})"
        return DeviceMemory(host.total // count, host.available // count, name)
    limit = (device.memory_stats() or {}).get("bytes_limit")
    chip = CHIPS.get(device.device_kind)
    limit = limit or (chip and chip.hbm)
    return DeviceMemory(int(limit), int(limit), device.device_kind) if limit else None


def find_local_memory(mesh: jax.sharding.Mesh) -> DeviceMemory | None:
    """Return the memory of the device of this process with the least."""
    local = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    if mesh.devices.flat[0].platform == "cpu":
        local = local[:1]  # All have the same share.
    return find_least([memory for device in local if (memory := find_device_memory(device))])


def find_smallest_memory(mesh: jax.sharding.Mesh) -> DeviceMemory | None:
    """Return the memory of the device with the least, the same in all processes of a run.

    Every process must call it.
    """
    memory = find_local_memory(mesh)
    if jax.process_count() == 1 or processes.get_client() is None:
        return memory
    own = None if memory is None else list(memory)
    found = exchange_values("memory", own, TIMEOUT)
    return find_least([DeviceMemory(*one) for one in found if one])


def find_least(memories: Sequence[DeviceMemory]) -> DeviceMemory | None:
    """Return the least memory of several devices; None if there are none."""
    if not memories:
        return None
    return min(memories)._replace(available=min(memory.available for memory in memories))


def format_bytes(count: float) -> str:
    """Return a number of bytes as text in a unit that suits it."""
    for unit, size in (("TiB", 2**40), ("GiB", GIB), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:,.2f} {unit}"
    return f"{int(count):,} bytes"
