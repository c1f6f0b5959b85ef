"""Generations: a store that was written is never changed. A rewrite lies beside it, and the manifest says which one is read.

    STORE/manifest.json     names the generation; its replacement is the one step in which a store becomes another
    STORE/<generation>/     the files, under a name that is a hash of what they hold

A reader holds a lock on the generation that it opened for as long as it has a part of it, so a rewrite removes those that nobody reads
and leaves the others. Where a file system has no locks, nothing is removed.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

from data.store import atomic
from data.store.writer import MANIFEST, READERS, UNFINISHED

GENERATION = re.compile(r"[0-9a-f]{12}(-\d{1,4})?")
FIRST_LAYOUT = ("train", "heldout", "vocabulary", "checksums")  # folders of a store of version 1


@contextlib.contextmanager
def replace_store(output: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a new folder for a `StoreWriter`, whose store is the one at `output` when the block ends; where it raises, nothing changes.

    Raises BlockingIOError where a living process writes the same store, NotADirectoryError where a file is there.
    """
    output = find_place(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic.open_scratch_folder(output) as scratch:
        yield scratch / "store"
        publish(scratch / "store", output, scratch)


def find_place(output: pathlib.Path) -> pathlib.Path:
    """Return where a store at `output` is written: where a link to one leads. Raises NotADirectoryError where a file is there."""
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(output))
    return output.resolve() if (output / MANIFEST).exists() else output


def publish(new: pathlib.Path, output: pathlib.Path, scratch: pathlib.Path) -> None:
    """Make the finished store in the folder `new` the one at `output`. scratch: a folder of the same file system to work in."""
    if not (output / MANIFEST).exists():
        atomic.move_into_place(new, output, scratch)
        return
    manifest = json.loads((new / MANIFEST).read_text())
    made = manifest["generation"]
    names = (made if not n else f"{made}-{n}" for n in range(10_000))
    name = next(name for name in names if not (output / name).exists())
    os.rename(new / made, output / name)
    atomic.sync(output)
    before = read_version(output)
    (scratch / MANIFEST).write_text(json.dumps(manifest | {"generation": name}, indent=1) + "\n")
    atomic.sync(scratch / MANIFEST)
    os.replace(scratch / MANIFEST, output / MANIFEST)
    atomic.sync(output)
    for path in find_others(output, name, before):
        remove_unread(path)


def read_version(output: pathlib.Path):
    """Return the version of the store at `output`, or None where its manifest is broken."""
    try:
        return json.loads((output / MANIFEST).read_text())["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def find_others(output: pathlib.Path, name: str, version) -> list[pathlib.Path]:
    """Return the folders of a store that are no part of its generation `name`. version: of the store before."""
    old = FIRST_LAYOUT if version == 1 else ()
    return [
        path
        for path in sorted(output.iterdir())
        if path.name != name
        and (GENERATION.fullmatch(path.name) or path.name in (UNFINISHED, *old))
        and path.is_dir()
        and not path.is_symlink()
    ]


def remove_unread(folder: pathlib.Path) -> None:
    """Remove a generation, unless somebody reads it or nobody can know."""
    if not GENERATION.fullmatch(folder.name):  # of a writer that was killed, or of the first layout
        shutil.rmtree(folder, ignore_errors=True)
        return
    try:  # for writing: NFS locks no other file exclusively
        lock = open(folder / READERS, "rb+")  # noqa: SIM115 - held while the folder is removed
    except OSError:  # another user's, or copied without it
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        shutil.rmtree(folder, ignore_errors=True)


def make_none() -> None:
    """Return None."""


class Hold:
    """Keeps a generation from being removed for as long as this object lives."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor

    def __reduce__(self):
        return make_none, ()  # a copy, here or in another process, holds nothing

    def __del__(self):
        os.close(self.descriptor)


def hold(folder: pathlib.Path) -> Hold | None:
    """Return what keeps a generation from being removed; None where that cannot be, as on a file system without locks.

    Raises FileNotFoundError where the generation is being removed.
    """
    try:
        held = Hold(os.open(folder / READERS, os.O_RDONLY | os.O_CLOEXEC))
        fcntl.flock(held.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileNotFoundError(f"{folder} is being removed") from None
    except OSError:
        return None
    return held
