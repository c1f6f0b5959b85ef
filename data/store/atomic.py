"""Files and folders that appear whole or not at all, whenever the process that writes them is killed.

Each is written in a scratch folder beside its target, which the process locks, and renamed. The lock dies with the
process, so the next writer of the same target can tell an abandoned scratch folder, which it removes, from a live one.
Renaming protects from the death of the process, not of the machine: only stores are forced to the disk (`sync`).

A bucket shows an object only when it is complete, so a file there is written under its own name.
"""

import contextlib
import errno
import fcntl
import glob
import os
import pathlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from typing import TextIO

from data.corpus.paths import as_path, is_remote

LOCK = "lock"
REPLACED = ".replaced"  # the old folder, while the new one takes its place
# What the system says of a full or broken disk; it names no file.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


# ---- files -------------------------------------------------------------------


def write_atomically(path, content: str | bytes) -> None:
    """Write text, as UTF-8, or bytes to `path`, here or in a bucket, in place of what is there."""
    with replace_file(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replace_file(path) -> Iterator[pathlib.Path]:
    """Yield a path of the same name to write to, which becomes `path` when the block ends, or vanishes when it raises.

    A link is replaced, and what it points to stays. A device or a pipe is written itself. Of several writers the last
    one wins. Raises IsADirectoryError for a folder; an OSError of a full disk names `path`.
    """
    path = as_path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if is_remote(path) or (path.exists() and not path.is_file()):
        yield path
        return
    with open_scratch_folder(path, exclusive=False) as scratch:
        yield scratch / path.name
        os.replace(scratch / path.name, path)


# ---- folders -----------------------------------------------------------------


@contextlib.contextmanager
def replace_folder(target) -> Iterator[pathlib.Path]:
    """Yield a new, empty folder to fill, which becomes `target` when the block ends, or vanishes when it raises.

    Raises BlockingIOError where a living process writes the same target, NotADirectoryError where a file is there.
    """
    target = as_path(target)
    if is_remote(target):
        with _replace_remote_folder(target) as new:
            yield new
        return
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(target) as scratch:
        new = scratch / "new"
        new.mkdir()
        yield new
        move_into_place(new, target, scratch)


@contextlib.contextmanager
def build_folder(target) -> Iterator[pathlib.Path]:
    """Yield a new, empty folder to fill, which becomes `target` when the block ends, or vanishes when it raises.

    Of several that build the same, the first to end has built it. Raises FileExistsError where `target` is there and
    not empty, before the block or after it.
    """
    target = as_path(target)
    _check_empty(target, "exists and is not empty")
    if is_remote(target):
        with _replace_remote_folder(target) as new:
            yield new
            _check_empty(target, "another process has filled it meanwhile")
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_scratch_folder(target, exclusive=False) as scratch:
        new = scratch / "new"
        new.mkdir()
        yield new
        try:  # one step, which an empty folder does not hinder and any other does
            os.rename(new, target)
        except OSError:
            _check_empty(target, "another process has filled it meanwhile")
            raise


def _check_empty(folder, problem):
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: {problem}; name a new folder")


@contextlib.contextmanager
def _replace_remote_folder(target):
    """`replace_folder` in a bucket, where a rename copies each object: a kill may leave `.NAME.part-...` or half of them."""
    new = target.parent / f".{target.name}.part-{secrets.token_hex(4)}"
    new.mkdir(parents=True)
    try:
        yield new
        if target.exists():
            target.rmtree()
        new.rename(target)
    finally:
        if new.exists():
            new.rmtree()


@contextlib.contextmanager
def open_scratch_folder(target: pathlib.Path, *, exclusive: bool = True) -> Iterator[pathlib.Path]:
    """Yield a new locked folder beside `target` to work in, which is removed in the end; abandoned ones are removed first.

    exclusive: raise BlockingIOError where a living process works on the same target.
    """
    prefix = f".{target.name}.part-"
    with name_in_disk_errors(target, target.parent / prefix):
        for leftover in sorted(target.parent.glob(f"{glob.escape(prefix)}*")):
            if not _remove_if_abandoned(leftover, target) and exclusive:
                raise BlockingIOError(
                    f"{target} is being written by another process, in {leftover}"
                )
        scratch, lock = _make_locked_folder(target.parent, prefix)
        try:
            yield scratch
        finally:
            _remove(scratch, lock)


def move_into_place(folder: pathlib.Path, target: pathlib.Path, scratch: pathlib.Path) -> None:
    """Rename a finished folder to `target`; what was there goes to `scratch`, and back where the rename fails."""
    old = scratch / REPLACED
    if target.exists() or target.is_symlink():
        os.rename(target, old)
    try:
        os.rename(folder, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    sync(target.parent)


def sync(path: pathlib.Path) -> None:
    """Force a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def name_in_disk_errors(path, prefix=None) -> Iterator[None]:
    """Give an OSError the name `path` where the system names no file, or one whose path begins with `prefix`."""
    try:
        yield
    except OSError as error:
        nameless = error.filename is None and error.errno in DISK_ERRORS
        if nameless or (prefix and str(error.filename).startswith(str(prefix))):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


# ---- scratch folders and their locks -----------------------------------------


def _make_locked_folder(parent: pathlib.Path, prefix: str) -> tuple[pathlib.Path, TextIO]:
    while True:
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock, _ = _open_locked(scratch / LOCK, fcntl.LOCK_EX)
            return scratch, lock
        except FileNotFoundError:  # another process took it for abandoned before it was locked
            continue


def _open_locked(path: pathlib.Path, how: int) -> tuple[TextIO, bool]:
    """Return a locked file, made if absent, and whether the file system has locks at all (some network ones do not).

    Raises FileNotFoundError where the file was removed meanwhile, BlockingIOError where `how` does not wait.
    """
    lock, has_locks = open(path, "a"), True  # noqa: SIM115 - its caller closes it
    try:
        try:
            fcntl.flock(lock, how)
        except BlockingIOError:
            raise
        except OSError:
            has_locks = False
        if not os.path.samestat(os.fstat(lock.fileno()), os.stat(path)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    except BaseException:
        lock.close()
        raise
    return lock, has_locks


def _remove_if_abandoned(scratch: pathlib.Path, target: pathlib.Path) -> bool:
    """Remove a scratch folder; return False, and leave it, where a living process works in it.

    A kill between the two renames of `move_into_place` leaves the old folder in it, which goes back to `target`.
    """
    try:
        lock, has_locks = _open_locked(scratch / LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (FileNotFoundError, PermissionError):  # removed by now; another user's
        return True
    if not has_locks:  # nobody knows whether its process lives, so it stays
        lock.close()
        return True
    if (scratch / REPLACED).is_dir() and not target.exists():
        os.rename(scratch / REPLACED, target)
    _remove(scratch, lock)
    return True


def _remove(scratch: pathlib.Path, lock: TextIO) -> None:
    """Remove a scratch folder, its lock last, so that no other process removes it at the same time."""
    for entry in list(scratch.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()
    (scratch / LOCK).unlink(missing_ok=True)
    lock.close()  # NFS keeps a deleted file in its folder while it is open
    with contextlib.suppress(OSError):  # another process locks it: then that one removes it
        scratch.rmdir()
