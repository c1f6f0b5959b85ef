"""Read files that come from others within bounds of time and memory.

A file of a downloaded folder may be a pipe that never ends, a device, a link to a secret, larger
than the memory, or JSON whose values take a hundred times the memory of its text. Each is refused
with the file, the value and the bound before it is read.
"""

import contextlib
import json
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from data.corpus.paths import is_remote

# Bytes of a file. The largest of released models: 34 MB of a tokenizer.json (Gemma, which is not
# read here), 2 MB of settings.
MAX_SETTINGS_BYTES = 8 << 20
MAX_VOCABULARY_BYTES = 32 << 20
# Values in a file of JSON: a vocabulary of 256k pieces with their merges has about 1.3 million. One
# takes up to 100 bytes in Python.
MAX_SETTINGS_VALUES = 500_000
MAX_VOCABULARY_VALUES = 2_000_000
MARKS = (b",", b"[", b"{", b":")  # there is one before or after each value
IS_MARK = np.isin(np.arange(256), [ord(mark) for mark in MARKS])
BLOCK_BYTES = 1 << 20  # bytes whose marks are counted at a time
SHORT_BYTES = 4 << 20  # of a line of JSON, whose values take at most about 100 MB
KINDS = {
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
    stat.S_ISDIR: "a folder",
}


def read_bounded(path: Any, limit: int = MAX_SETTINGS_BYTES) -> bytes:
    """Return the bytes of a regular file, local or remote, which must be at most `limit`.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is larger, or not a regular file.
    """
    if is_remote(path):
        check_size(path, path.stat().length, limit)
        return path.read_bytes()
    with open_regular(path) as file:
        check_size(path, os.fstat(file.fileno()).st_size, limit)
        # It may grow meanwhile; `read` takes the memory of all that it is asked for.
        content = file.read(min(limit, os.fstat(file.fileno()).st_size) + 1)
    check_size(path, len(content), limit)
    return content


def open_regular(path: Any) -> BinaryIO:
    """Open a local file for reading; raise ValueError if it is a pipe, a device or a folder."""
    # Without O_NONBLOCK, a pipe is opened only when somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_regular(path, os.fstat(descriptor))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded_text(path: Any, limit: int = MAX_SETTINGS_BYTES) -> str:
    """Return the text of a UTF-8 file; raises as `read_bounded`, and ValueError for other bytes."""
    content = read_bounded(path, limit)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: not UTF-8 ({error.reason}, byte {error.start:,}); was it fetched whole?"
        ) from None


def read_bounded_json(
    path: Any,
    limit: int = MAX_SETTINGS_BYTES,
    max_values: int = MAX_SETTINGS_VALUES,
    finite: bool = True,
) -> Any:
    """Return the JSON value in a file; raises as `read_bounded` and `parse_bounded_json`."""
    return parse_bounded_json(read_bounded(path, limit), path, max_values, finite)


def parse_bounded_json(
    content: bytes | str, place: Any, max_values: int = MAX_SETTINGS_VALUES, finite: bool = True
) -> Any:
    """Return the JSON value in a text.

    Args:
      place: what the errors begin with, such as its path.
      max_values: the largest number of values in it.
      finite: whether NaN and infinite numbers are refused. Python writes and reads them.

    Raises:
      ValueError: if the text is not JSON, nested too deeply, has more values, a key twice in one
        object, or a number that is not finite; the message begins with `place`.
    """
    content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if (count := count_marks(content)) > max_values:
        raise ValueError(f"{place}: {describe_excess(count, max_values)}")
    with naming_json_errors(place):
        numbers = {"parse_constant": _refuse, "parse_float": _to_float} if finite else {}
        return json.loads(content, object_pairs_hook=_make_object, **numbers)


def count_marks(content: bytes) -> int:
    """Return the number of marks of JSON in a text, which has at most about so many values."""
    return sum(map(content.count, MARKS))


def describe_excess(count: int, max_values: int) -> str:
    """Return the message that a text of JSON has too many values."""
    return f"has about {count:,} values of JSON; at most {max_values:,} are read"


def find_excess_of_line(line: str | bytes, max_values: int = MAX_VOCABULARY_VALUES) -> str | None:
    """Return that a line of JSON, a text or UTF-8, has too many values, or None.

    A short line has never too many. Marks within strings are not counted: the text of a document
    has as many commas as it likes.
    """
    if len(line) <= SHORT_BYTES:
        return None
    content = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    if count_marks(content) <= max_values:
        return None
    # Without the escaped quotation marks, each one begins or ends a string.
    bare = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    count, is_open = 0, False
    for begin in range(0, len(bare), BLOCK_BYTES):
        block = np.frombuffer(bare, np.uint8, min(BLOCK_BYTES, len(bare) - begin), begin)
        is_within = np.logical_xor.accumulate(block == ord('"')) ^ is_open
        count += int((IS_MARK[block] & ~is_within).sum())
        is_open = bool(is_within[-1])
    return describe_excess(count, max_values) if count > max_values else None


@contextlib.contextmanager
def naming_json_errors(place: Any) -> Iterator[None]:
    """Raise ValueError that begins with `place` for what `json.loads` raises within the block."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place}: not JSON ({error.msg}, line {error.lineno} column {error.colno}); was it "
            "fetched whole?"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{place}: not JSON (not UTF-8, byte {error.start:,}); was it fetched whole?"
        ) from None
    except RecursionError:
        raise ValueError(f"{place}: not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{place}: not JSON that can be read: {error}") from None


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; of two values of one key, other programs might read the other."""
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {twice[:80]!r} occurs twice in one object")
    return made


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number of JSON")


def _to_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:80]} is too large for a number")
    return value


def check_size(path: Any, size: int, limit: int) -> None:
    """Raise ValueError if a file has more than `limit` bytes."""
    if size > limit:
        raise ValueError(f"{path}: has {size:,} bytes; at most {limit:,} are read")


def check_regular(path: Any, status: os.stat_result) -> None:
    """Raise ValueError unless a status belongs to a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for check, name in KINDS.items() if check(status.st_mode)), "no file")
        raise ValueError(f"{path}: is {kind}; expected a regular file")


def check_special_files(folder: Any) -> None:
    """Raise ValueError if a folder has a pipe, a device or a socket in the place of a file.

    A process that opens a pipe waits until somebody writes to it: libraries that read a checkpoint
    or a vocabulary do not return, and no signal ends the process. Nothing is raised for a folder in
    a bucket, or one that does not exist. Links to folders are not followed.
    """
    if is_remote(folder):
        return
    try:
        with os.scandir(folder) as found:
            entries = [*found]
    except OSError:  # it is absent, removed meanwhile, or closed to this user, as its reader says
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            check_special_files(entry.path)
        elif not entry.is_file(follow_symlinks=False) and not os.path.isdir(entry.path):
            try:
                status = os.stat(entry.path)
            except OSError:  # a link to nothing, or removed meanwhile
                continue
            check_regular(entry.path, status)


def _is_shared_blob(target: pathlib.Path, cache: pathlib.Path) -> bool:
    """Return whether a file is one that the repositories of a cache of the Hub share.

    huggingface_hub 2 has them in CACHE/blobs/HH/HASH, where HH begins the HASH, with a mark of its
    own in CACHE/blobs.
    """
    shared = cache / "blobs"
    name = target.name
    return (
        target == shared / name[:2] / name
        and re.fullmatch("[0-9a-f]{64}", name) is not None
        and (shared / ".huggingface-shared-blobs").is_file()
    )


def check_own_file(path: pathlib.Path) -> None:
    """Raise ValueError if a file of a folder is a link out of that folder, or not a regular file.

    Nothing is raised for a file that does not exist. A snapshot of the Hugging Face hub's cache
    (models--NAME/snapshots/REVISION) may link to its blobs (models--NAME/blobs), and
    these to the blobs that all repositories of the cache share.
    """
    if not os.path.lexists(path):
        return
    folder = path.parent.resolve()
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:  # Python 3.11 and 3.12 say RuntimeError of a circle
        reason = error.strerror if isinstance(error, OSError) else "a circle of links"
        raise ValueError(f"{path}: is a link that leads to no file ({reason})") from None
    allowed = [folder]
    for snapshot in (folder, folder.parent):  # the second for a file of a subfolder
        if snapshot.parent.name == "snapshots":
            repository = snapshot.parent.parent
            allowed.append(repository / "blobs")
            if _is_shared_blob(target, repository.parent):
                allowed.append(target)
    if not any(target.is_relative_to(folder) for folder in allowed):
        raise ValueError(
            f"{path}: is a link to {target}, outside of the folder; copy the file itself there if "
            "you trust it"
        )
    check_regular(path, target.stat())
