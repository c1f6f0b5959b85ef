"""Generations of a store: a rewrite adds a new generation and never changes an old one.

    STORE/manifest.json     names the current generation; replacing this file publishes another one
    STORE/<generation>/     the files; the name is a hash of their contents

A reader locks its generation as long as it has one of its arrays. A rewrite removes the generations
that no process reads. On a file system without locks nothing is removed.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from data.corpus.untrusted import check_regular
from data.store import atomic
from data.store.writer import MANIFEST_FILE, READERS_FILE, UNFINISHED_FOLDER

GENERATION_NAME = re.compile(r"[0-9a-f]{12}(-\d{1,4})?")
VERSION_1_FOLDERS = (
    "train",
    "heldout",
    "vocabulary",
    "checksums",
)  # folders of stores of version 1


@contextlib.contextmanager
def replace_store(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new folder for a `StoreWriter`, whose store replaces `output` when the block ends.

    If the block raises, nothing changes.

    Raises:
      BlockingIOError: if another process is writing the same store.
      NotADirectoryError: if `output` is a file.
    """
    output = resolve_output(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic.open_scratch_folder(output) as scratch:
        yield scratch / "store"
        publish_generation(scratch / "store", output, scratch)


def resolve_output(output: pathlib.Path) -> pathlib.Path:
    """Return the folder of a store at `output`, which may be a link to another store.

    Raises NotADirectoryError if `output` is a file.
    """
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(output))
    return output.resolve() if (output / MANIFEST_FILE).exists() else output


def publish_generation(new: pathlib.Path, output: pathlib.Path, scratch: pathlib.Path) -> None:
    """Replace the store at `output` with a finished one.

    Args:
      new: folder of the finished store.
      output: folder of the store that is replaced, if it exists.
      scratch: a folder on the same file system for temporary files.
    """
    if not (output / MANIFEST_FILE).exists():
        atomic.move_into_place(new, output, scratch)
        return
    manifest = json.loads((new / MANIFEST_FILE).read_text())
    digest = manifest["generation"]
    names = (digest if not n else f"{digest}-{n}" for n in range(10_000))
    name = next(name for name in names if not (output / name).exists())
    os.rename(new / digest, output / name)
    atomic.sync_to_disk(output)
    old_version = read_version(output)
    (scratch / MANIFEST_FILE).write_text(
        json.dumps(manifest | {"generation": name}, indent=1) + "\n"
    )
    atomic.sync_to_disk(scratch / MANIFEST_FILE)
    os.replace(scratch / MANIFEST_FILE, output / MANIFEST_FILE)
    atomic.sync_to_disk(output)
    for path in list_other_generations(output, name, old_version):
        remove_if_unread(path)


def read_version(output: pathlib.Path) -> Any:
    """Return the version in the manifest of a store; None if the manifest is broken."""
    try:
        return json.loads((output / MANIFEST_FILE).read_text())["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def list_other_generations(output: pathlib.Path, name: str, version: Any) -> list[pathlib.Path]:
    """Return the folders of a store other than its generation `name`.

    Args:
      output: folder of the store.
      name: the current generation.
      version: version of the manifest before the current one.
    """
    old = VERSION_1_FOLDERS if version == 1 else ()
    return [
        path
        for path in sorted(output.iterdir())
        if path.name != name
        and (GENERATION_NAME.fullmatch(path.name) or path.name in (UNFINISHED_FOLDER, *old))
        and path.is_dir()
        and not path.is_symlink()
    ]


def remove_if_unread(folder: pathlib.Path) -> None:
    """Remove a generation, unless a process reads it or the file system has no locks."""
    if not GENERATION_NAME.fullmatch(folder.name):  # of a killed writer, or of version 1
        shutil.rmtree(folder, ignore_errors=True)
        return
    try:  # NFS requires write access for an exclusive lock
        lock = open(folder / READERS_FILE, "rb+")  # noqa: SIM115 - open until the folder is removed
    except OSError:  # of another user, or a copy without this file
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        shutil.rmtree(folder, ignore_errors=True)


def make_none() -> None:
    """Return None, the value to which a lock is unpickled."""


class GenerationLock:
    """A shared lock that prevents the removal of a generation during the life of this object."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return make_none, ()  # a copy has no lock

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.descriptor)  # at the end of a program `os` may be gone before


def lock_generation(folder: pathlib.Path) -> GenerationLock | None:
    """Lock a generation against removal; return None on a file system without locks.

    Raises:
      FileNotFoundError: if another process is removing the generation.
      ValueError: if the file that is locked is a pipe or a device.
    """
    path, flags = folder / READERS_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        lock = GenerationLock(os.open(path, flags))  # without O_NONBLOCK it waits for a pipe
        check_regular(path, os.fstat(lock.descriptor))
        fcntl.flock(lock.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileNotFoundError(f"{folder} is being removed") from None
    except OSError:
        return None
    return lock
