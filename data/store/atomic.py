"""A folder that appears whole or not at all, whenever the process that writes it is killed.

It is written beside its place, in a folder that this process has locked, and renamed. The lock dies with the process,
so that what a killed run left behind can be told from what another one is writing now.
"""

import contextlib
import fcntl
import glob
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from data.store.writer import sync

LOCK = "lock"


@contextlib.contextmanager
def workshop(target: pathlib.Path) -> Iterator[pathlib.Path]:
    """A new folder beside `target` to write in, locked, removed in the end; leftovers of dead runs are removed first.

    Raises BlockingIOError if a living process writes the same target.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{target.name}.preparing-"
    for leftover in sorted(target.parent.glob(f"{glob.escape(prefix)}*")):
        _remove_if_dead(leftover, target)
    folder = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    with open(folder / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def move_into_place(folder: pathlib.Path, target: pathlib.Path, scrap: pathlib.Path) -> None:
    """Rename a finished folder to `target`; what was there goes to `scrap`, a folder that the caller removes."""
    if target.exists():
        os.rename(target, scrap / "replaced")
    os.rename(folder, target)
    sync(target.parent)


def _remove_if_dead(folder: pathlib.Path, target: pathlib.Path) -> None:
    try:
        with open(folder / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    except BlockingIOError as error:
        raise BlockingIOError(
            f"{target} is being prepared by another process, in {folder}"
        ) from error
