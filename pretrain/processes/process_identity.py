"""Identity of local processes: which of them are alive, and how a child ends with its parent."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import sys
import threading
import time

# The environment variable with which a parent makes its child end when the parent ends.
PARENT_VARIABLE = "CLOZE_PARENT_PID"
PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def identify_machine() -> tuple[str, str]:
    """Return (boot id, PID namespace), in which process ids are unique; ("", "") without /proc."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def read_start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None without /proc."""
    state, start = _read_stat(pid)
    return start if state else None


def is_alive(pid: int, start: int) -> bool:
    """Return whether process `pid` is still the one that started at `start`.

    A zombie process is not alive.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user
        pass
    state, current_start = _read_stat(pid)
    return state is None or (state not in "ZX" and current_start == start)


def _read_stat(pid: int) -> tuple[str, int] | tuple[None, None]:
    """Return (state, start time) of a process, or (None, None) if /proc does not show it."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None, None
    # The command in brackets may itself contain blanks and brackets.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def end_with_parent() -> None:
    """End this process by SIGKILL when its parent dies, if PARENT_VARIABLE is set."""
    # Removed, because this process's own children have another parent.
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    else:
        threading.Thread(
            target=_watch_parent, args=(int(parent),), name="parent", daemon=True
        ).start()
    if os.getppid() != int(parent):  # the parent died before
        os.kill(os.getpid(), signal.SIGKILL)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
