"""Processes of this machine: which of them are alive, and ending with the parent."""

import ctypes
import os
import pathlib
import signal
import sys
import threading
import time

PARENT = (
    "CLOZE_PARENT_PID"  # the environment variable by which a parent asks its child to end with it
)
PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def machine() -> tuple[str, str]:
    """Return (boot id, PID namespace), which together say what a process number means; empty strings where there is no /proc."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None where the kernel does not tell."""
    state, start = _stat(pid)
    return start if state else None


def is_alive(pid: int, start: int) -> bool:
    """Return whether process `pid` is still the one that started at `start`. A process that only waits to be reaped is not alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        pass
    state, started = _stat(pid)
    return state is None or (state not in "ZX" and started == start)


def _stat(pid):
    """(state, start time) of a process, (None, None) where /proc does not show it."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None, None
    fields = text.rpartition(")")[2].split()  # the command before it may hold blanks and brackets
    return fields[0], int(fields[19])


def end_with_parent() -> None:
    """End this process by SIGKILL when its parent dies, if the parent asked for that by the environment variable PARENT."""
    parent = os.environ.pop(PARENT, None)  # this process's own children have another parent
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
    if os.getppid() != int(parent):  # it died before
        os.kill(os.getpid(), signal.SIGKILL)


def _watch_parent(parent):
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
