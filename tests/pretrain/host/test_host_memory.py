"""The memory that a process may have: the machine's, below the limits of its cgroups and of
the process itself.
"""

import shlex
import subprocess
import sys

import pytest

from pretrain.host import host_memory
from pretrain.host.host_memory import count_physical_bytes, find_host_memory

GIB = 2**30
MEMINFO = "MemTotal: {} kB\nMemFree: 1 kB\nMemAvailable: {} kB\nSwapTotal: {} kB\nSwapFree: {} kB\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return machine(cgroups, limits): a machine of 16 GiB, 9 of them available, with 2 of swap.

    cgroups: text of /proc/self/cgroup. limits: {file below /sys/fs/cgroup: text}.
    """

    def make_machine(cgroups="", limits=()):
        sizes = (size * GIB // 1024 for size in (16, 9, 2, 1))
        (tmp_path / "meminfo").write_text(MEMINFO.format(*sizes))
        (tmp_path / "own").write_text(cgroups)
        for name, text in dict(limits).items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "meminfo")
        monkeypatch.setattr(host_memory, "OWN_CGROUPS", tmp_path / "own")
        monkeypatch.setattr(host_memory, "CGROUPS", tmp_path / "cgroup")
        monkeypatch.setattr(host_memory, "read_process_limits", list)

    return make_machine


@pytest.mark.parametrize(
    ("cgroups", "limits", "total"),
    [
        ("", {}, 18),
        ("0::/job/run\n", {"job/run/memory.max": "max", "job/memory.max": 4 * GIB}, 6),
        ("0::/job/run\n", {"memory.max": 5 * GIB}, 7),  # what a container sees of its own
        ("5:cpu,memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": 3 * GIB}, 5),
        ("5:memory:/job\n", {"memory/job/memory.limit_in_bytes": 1 << 62}, 18),
        ("5:cpu:/job\n", {"memory/job/memory.limit_in_bytes": GIB}, 18),
    ],
)
def test_the_least_limit_counts_with_swap(machine, cgroups, limits, total):
    machine(cgroups, limits)
    assert find_host_memory() == (total * GIB, min(total, 10) * GIB)


def test_a_machine_without_meminfo_has_no_known_limit(machine, monkeypatch, tmp_path):
    machine()
    monkeypatch.setattr(host_memory, "MEMINFO", tmp_path / "none")
    assert find_host_memory() is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_this_machine_has_memory_and_a_process_may_have_less():
    memory = find_host_memory()
    assert memory is not None and 0 < memory.available <= memory.total
    code = "from pretrain.host.host_memory import *; print(find_host_memory().total)"
    kib, path = 3 * GIB // 1024, shlex.quote(sys.executable)
    command = f"ulimit -v {kib}; exec {path} -c {shlex.quote(code)}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert int(done.stdout) == min(3 * GIB, memory.total)
    assert count_physical_bytes() > 0
