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
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from data.corpus.untrusted import check_regular
from data.source import MANIFEST_FILE, SPLITS
from data.store import atomic
from data.store.manifest import (
    CHECKSUMS_FOLDER,
    GENERATION_NAME,
    READERS_FILE,
    get_checksums_name,
    read_own_manifest,
)


@contextlib.contextmanager
def replace_store(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new folder for a `StoreWriter`, whose store replaces `output` when the block ends.

    If the block raises, nothing changes.

    Raises:
      BlockingIOError: if another process is writing the same store.
      FileExistsError: if `output` has something else than a store.
      NotADirectoryError: if `output` is a file.
    """
    output = resolve_output(output)
    read_replaced(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic.open_scratch_folder(output) as scratch:
        yield scratch / "store"
        publish_generation(scratch / "store", output, scratch)


def resolve_output(output: pathlib.Path) -> pathlib.Path:
    """Return the folder of a store at `output`, which may be a link to another folder.

    Raises:
      NotADirectoryError: if `output` is a file.
      FileNotFoundError: if it is a link to what is not there.
    """
    if output.is_symlink() and not output.exists():
        raise FileNotFoundError(
            f"{output} is a link to {os.readlink(output)}, which is not there; make that folder, "
            "or name another --output"
        )
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(output))
    return output.resolve() if output.is_symlink() else output


def check_new_store(output: pathlib.Path, overwrite: bool) -> None:
    """Raise FileExistsError if there is something at `output`, unless a store may be replaced."""
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; name another --output, or add --overwrite")
    read_replaced(output)


def read_replaced(output: pathlib.Path) -> dict[str, Any] | None:
    """Return the manifest of the store that a new one would replace; None if there is nothing.

    Raises FileExistsError if there is something else than a store of this program.
    """
    manifest = read_own_manifest(output)
    if manifest is None and output.is_dir() and any(output.iterdir()):
        raise FileExistsError(
            f"{output} exists and is not a token store"
            + (
                f" (its {MANIFEST_FILE} is broken, or of another program)"
                if os.path.lexists(output / MANIFEST_FILE)
                else ""
            )
            + "; it will not be overwritten: name another --output"
        )
    return manifest


def publish_generation(new: pathlib.Path, output: pathlib.Path, scratch: pathlib.Path) -> None:
    """Replace the store at `output` with a finished one.

    Args:
      output: folder of the store that is replaced, if it exists.

    Raises:
      FileExistsError: if there is something else at `output`, perhaps since a moment ago.
    """
    replaced = read_replaced(output)
    if replaced is None:
        os.rename(new, output)  # replaces an empty folder, and fails for any other
        atomic.sync_to_disk(output.parent)
        return
    manifest = json.loads((new / MANIFEST_FILE).read_text())
    digest = manifest["generation"]
    names = (digest if not n else f"{digest}-{n}" for n in range(10_000))
    name = next(name for name in names if not os.path.lexists(output / name))
    os.rename(new / digest, output / name)
    atomic.sync_to_disk(output)
    (scratch / MANIFEST_FILE).write_text(
        json.dumps(manifest | {"generation": name}, indent=1) + "\n"
    )
    atomic.sync_to_disk(scratch / MANIFEST_FILE)
    os.replace(scratch / MANIFEST_FILE, output / MANIFEST_FILE)
    atomic.sync_to_disk(output)
    for path in list_other_generations(output, name):
        remove_if_unread(path)
    if replaced["version"] == 1:
        remove_version_1(output, replaced["files"])


def list_other_generations(output: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Return the folders of a store's generations other than `name`."""
    return [
        path
        for path in sorted(output.iterdir())
        if path.name != name and GENERATION_NAME.fullmatch(path.name) and is_generation(path)
    ]


def is_generation(folder: pathlib.Path) -> bool:
    """Return whether a folder has what a `StoreWriter` writes into each generation.

    A link to a generation is none.
    """
    tokens = f"{SPLITS[0]}/tokens.bin"
    files = (READERS_FILE, tokens, get_checksums_name(tokens))
    folders = (folder, folder / SPLITS[0], folder / CHECKSUMS_FOLDER)
    return all(path.is_dir() and not path.is_symlink() for path in folders) and all(
        (folder / file).is_file() and not (folder / file).is_symlink() for file in files
    )


def remove_if_unread(folder: pathlib.Path) -> None:
    """Remove a generation, unless a process reads it or the file system has no locks."""
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


def remove_version_1(output: pathlib.Path, files: Iterable[str]) -> None:
    """Remove the files of a store of version 1, which were next to its manifest, by their names."""
    paths = [output / name for name in files]
    paths = [path for path in paths if not path.parent.is_symlink() and path.is_file()]
    for path in paths:
        path.unlink()
    for folder in {path.parent for path in paths}:
        with contextlib.suppress(OSError):  # there are files of others in it
            folder.rmdir()


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
