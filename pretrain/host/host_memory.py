"""The memory of this machine that this process may use."""

from __future__ import annotations

import os
import pathlib
import re
from typing import NamedTuple

MEMINFO = pathlib.Path("/proc/meminfo")
OWN_CGROUPS = pathlib.Path("/proc/self/cgroup")
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class HostMemory(NamedTuple):
    """Bytes of memory, with swap space.

    Attributes:
      available: what is free now, or can be freed.
    """

    total: int
    available: int


def count_physical_bytes() -> int:
    """Return the bytes of physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def find_host_memory() -> HostMemory | None:
    """Return the memory for this process; None where swap space has no known limit (macOS)."""
    if not MEMINFO.exists():
        return None
    sizes = {
        name: int(kib) * 1024
        for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", MEMINFO.read_text(), re.MULTILINE)
    }
    limits = read_cgroup_limits(sizes["SwapTotal"]) + read_process_limits()
    total = min([sizes["MemTotal"] + sizes["SwapTotal"], *limits])
    return HostMemory(total, min(total, sizes["MemAvailable"] + sizes["SwapFree"]))


def read_cgroup_limits(swap: int) -> list[int]:
    """Return the limits of this process's cgroup and of those around it; `swap` is added to each.

    A limit of version 2 has a file `memory.max`, one of version 1 `memory.limit_in_bytes`.
    """
    files = []
    for line in _read_text(OWN_CGROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (
            (CGROUPS / "memory", "memory.limit_in_bytes")
            if controllers
            else (CGROUPS, "memory.max")
        )
        folder = root / path.lstrip("/")
        files += [parent / name for parent in (folder, *folder.parents)]
    return [int(text) + swap for file in files if (text := _read_text(file)).isdigit()]


def _read_text(file: pathlib.Path) -> str:
    """Return the text of a file; "" where there is none, as without cgroups or in a container."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def read_process_limits() -> list[int]:
    """Return the limits of this process's own memory, such as by `ulimit -v`."""
    import resource

    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    limits = [resource.getrlimit(kind)[0] for kind in kinds]
    return [limit for limit in limits if limit != resource.RLIM_INFINITY]
