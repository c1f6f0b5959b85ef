"""Pins of commands that read a checkpoint while `train` runs.

A reader holds a locked file, `.reading.STEP.ID`, in the workdir. The run's retention policy keeps
the steps of the locked files. The system releases the lock of a reader that is killed, and the
policy removes its file. Object stores have no locks: there, a reader that loses its checkpoint
starts again with a newer one (read_params.py).
"""

import contextlib
import fcntl
import os
import re
import uuid
from collections.abc import Iterator

from etils import epath

from data.corpus.paths import is_remote

FILE_NAME = re.compile(r"\.reading\.(\d{1,18})\.[0-9a-f]{32}")


@contextlib.contextmanager
def pin_step(workdir: epath.PathLike, step: int) -> Iterator[None]:
    """Keep a checkpoint from being deleted inside the block.

    Without effect on an object store, and in a folder that this user cannot write.
    """
    with contextlib.ExitStack() as stack:
        if not is_remote(workdir):
            path = os.path.join(os.fspath(workdir), f".reading.{step}.{uuid.uuid4().hex}")
            if _lock_new_file(path, stack):
                stack.callback(_remove_file, path)
        yield


def list_pinned_steps(workdir: epath.PathLike) -> set[int]:
    """Return the steps that readers have pinned; remove the files of readers that have ended."""
    if is_remote(workdir) or not os.path.isdir(workdir):
        return set()
    steps = set()
    for entry in os.scandir(workdir):
        match = FILE_NAME.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False) and not _remove_unlocked(entry.path):
            steps.add(int(match[1]))
    return steps


def _lock_new_file(path: str, stack: contextlib.ExitStack) -> bool:
    """Create a file and lock it until the stack closes; return False if the system refuses."""
    for _ in range(3):  # the run may remove the file before it is locked
        try:
            file = stack.enter_context(open(path, "x"))  # noqa: SIM115 - the stack closes it
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileExistsError:
            continue
        except OSError:  # a read-only or full disk, no locks: the checkpoint can be read unpinned
            _remove_file(path)
            return False
        if os.path.exists(path):
            return True
    return False


def _remove_unlocked(path: str) -> bool:
    """Remove a file that nobody has locked; return whether it is gone."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    except FileNotFoundError:
        return True
    except OSError:  # locked, or its state cannot be found out: the step stays
        return False
    return True


def _remove_file(path: str) -> None:
    with contextlib.suppress(OSError):  # the run may have removed it; a remaining file is unlocked
        os.unlink(path)
