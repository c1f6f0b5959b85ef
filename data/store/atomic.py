"""Write files and folders atomically: a killed process never leaves an incomplete one.

A file or folder is written to a scratch folder next to its target and then renamed. The process
locks its scratch folder, and the lock ends with the process. So the next writer of the same target
can distinguish an abandoned scratch folder, which it removes, from one in use. A rename protects
against the death of the process, not of the machine; only stores are also synced to disk.

A bucket shows an object only when it is complete, so a remote file is written under its own name.
"""

import contextlib
import errno
import fcntl
import glob
import os
import pathlib
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import Any, TextIO

from data.corpus.paths import as_path, is_remote

LOCK_FILE = "lock"
# The content of a lock file, by which a scratch folder is known to be this program's.
LOCK_MARK = "A scratch folder of Cloze: removed once the process that locks it has ended.\n"
REPLACED_FOLDER = ".replaced"  # name of the old folder until the new one is in place
# Errors of a full or broken disk, which name no file.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


# ---- files -------------------------------------------------------------------


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write text (as UTF-8) or bytes to a local or remote file, which is replaced if it exists."""
    with replace_file(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a path to write to, which replaces `path` when the block ends.

    If the block raises, nothing changes. The permissions of the file stay. A link is replaced, and
    its target stays. A device or pipe is written directly. The last of several writers wins.

    Raises:
      IsADirectoryError: if `path` is a folder.
      OSError: if the disk is full; it names `path`.
    """
    path = as_path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if is_remote(path) or (path.exists() and not path.is_file()):
        yield path
        return
    with open_scratch_folder(path, exclusive=False) as scratch:
        yield scratch / path.name
        _keep_mode(path, scratch / path.name)
        os.replace(scratch / path.name, path)


# ---- folders -----------------------------------------------------------------


@contextlib.contextmanager
def replace_folder(target: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a new folder to fill, which replaces `target` when the block ends.

    If the block raises, nothing changes.

    Raises:
      BlockingIOError: if another process is writing the same target.
      NotADirectoryError: if `target` is a file.
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
def build_folder(target: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a new folder to fill, which becomes `target` when the block ends.

    If the block raises, nothing changes. The first of several writers wins.

    Raises:
      FileExistsError: if `target` exists and is not empty, before the block or after it.
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
        try:  # replaces an empty folder and fails for any other
            os.rename(new, target)
        except OSError:
            _check_empty(target, "another process has filled it meanwhile")
            raise


def _check_empty(folder: pathlib.Path, problem: str) -> None:
    """Raise FileExistsError with the problem if a folder exists and is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder}: {problem}; name a new folder")


@contextlib.contextmanager
def _replace_remote_folder(target: Any) -> Iterator[Any]:
    """Replace a remote folder.

    Renaming in a bucket copies each object, so a killed process may leave `.NAME.part-...`, or some
    of the objects of the target.
    """
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
    """Yield a new locked folder next to `target`, which is removed when the block ends.

    Abandoned scratch folders of the same target are removed first.

    Args:
      target: the file or folder that will be written.
      exclusive: whether only one process at a time may write the target.

    Raises:
      BlockingIOError: if `exclusive`, and another process is writing the target.
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
            _remove_scratch(scratch, lock)


def move_into_place(folder: pathlib.Path, target: pathlib.Path, scratch: pathlib.Path) -> None:
    """Rename a finished folder to `target`.

    An old target is moved to `scratch`, and back if the rename fails.
    """
    old = scratch / REPLACED_FOLDER
    if target.exists() or target.is_symlink():
        _keep_mode(target, folder)
        os.rename(target, old)
    try:
        os.rename(folder, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise
    sync_to_disk(target.parent)


def _keep_mode(old: pathlib.Path, new: pathlib.Path) -> None:
    """Give a new file or folder the permissions of the one that it replaces, if there is one."""
    if old.exists():
        new.chmod(stat.S_IMODE(old.stat().st_mode))


def sync_to_disk(path: pathlib.Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def name_in_disk_errors(
    path: str | os.PathLike[str], prefix: str | os.PathLike[str] | None = None
) -> Iterator[None]:
    """Put the name `path` into an OSError of the block.

    It applies to disk errors without a file name, and to names that begin with `prefix`.
    """
    try:
        yield
    except OSError as error:
        has_no_name = error.filename is None and error.errno in DISK_ERRORS
        if has_no_name or (prefix and str(error.filename).startswith(str(prefix))):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


# ---- scratch folders and their locks -----------------------------------------


def _make_locked_folder(parent: pathlib.Path, prefix: str) -> tuple[pathlib.Path, TextIO]:
    """Make a folder with a unique name and return it with its open, marked lock file."""
    while True:
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            with _open_folder(scratch) as folder:
                lock, _ = _open_locked(folder, fcntl.LOCK_EX, os.O_CREAT)
        except FileNotFoundError:  # another process removed it as empty before it was locked
            continue
        try:
            lock.write(LOCK_MARK)
            lock.flush()
        except BaseException:  # a full disk
            _remove_scratch(scratch, lock)
            raise
        return scratch, lock


@contextlib.contextmanager
def _open_folder(path: pathlib.Path) -> Iterator[int]:
    """Open a folder, which keeps its descriptor if the path changes; a link is an OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield folder
    finally:
        os.close(folder)


def _open_locked(folder: int, operation: int, create: int = 0) -> tuple[TextIO, bool]:
    """Open the lock file of a scratch folder and lock it.

    Args:
      operation: as for fcntl.flock.
      create: os.O_CREAT makes the file if it is absent.

    Returns:
      The open file, and whether the file system supports locks (some network ones do not).
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | create
    lock, has_locks = os.fdopen(os.open(LOCK_FILE, flags, 0o666, dir_fd=folder), "r+"), True
    try:
        if not stat.S_ISREG(os.fstat(lock.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", LOCK_FILE)
        try:
            fcntl.flock(lock, operation)
        except BlockingIOError:
            raise
        except OSError:
            has_locks = False
        if not os.path.samestat(os.fstat(lock.fileno()), os.stat(LOCK_FILE, dir_fd=folder)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), LOCK_FILE)
    except BaseException:
        lock.close()
        raise
    return lock, has_locks


def _remove_if_abandoned(scratch: pathlib.Path, target: pathlib.Path) -> bool:
    """Remove an abandoned scratch folder; return False if another process is using it.

    Only a folder whose lock file has LOCK_MARK is removed. Anything else with such a name, a link
    first of all, is of another program or person, and stays.

    A kill between the two renames of `move_into_place` leaves the old target in the scratch folder,
    from where it is moved back to `target`.
    """
    try:
        with _open_folder(scratch) as folder:
            lock, has_locks = _open_locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not has_locks or lock.read(len(LOCK_MARK) + 1) != LOCK_MARK:
                lock.close()  # its process may be alive, or it is not ours
                return True
            if _is_folder(REPLACED_FOLDER, folder) and not os.path.lexists(target):
                os.rename(REPLACED_FOLDER, target, src_dir_fd=folder)
    except BlockingIOError:
        return False
    except (OSError, UnicodeDecodeError):  # a link, a file, removed meanwhile, of another user
        return True
    _remove_scratch(scratch, lock)
    return True


def _is_folder(name: str, parent: int) -> bool:
    """Return whether the folder with the descriptor `parent` has a folder of this name."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _remove_scratch(scratch: pathlib.Path, lock: TextIO) -> None:
    """Remove a scratch folder and at last its lock, so no other process removes it concurrently."""
    with lock, _open_folder(scratch) as folder:
        for name in os.listdir(folder):
            if _is_folder(name, folder):
                shutil.rmtree(name, dir_fd=folder)
            elif name != LOCK_FILE:
                os.unlink(name, dir_fd=folder)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(LOCK_FILE, dir_fd=folder)
    # On NFS a deleted file stays in its folder while it is open, so the lock is closed by now.
    with contextlib.suppress(OSError):  # another process has locked it and will remove it
        scratch.rmdir()
