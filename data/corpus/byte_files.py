"""Open local and remote files, plain or gzipped, as uncompressed bytes."""

import contextlib
import gzip
import io
from collections.abc import Callable
from typing import IO, Any, cast

from data.corpus.paths import as_path, is_remote

BUFFER_BYTES = 1 << 20
PROBED_BYTES = 1024  # of a file, in which a wide encoding without a mark is looked for
# {first bytes of a file: its encoding}; UTF-32's mark begins with one of UTF-16.
WIDE_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
# {first bytes of a file: what it is}, of files that are not text.
BINARY_BEGINNINGS = {
    b"\x1f\x8b": "a gzip file; its name has to end in .gz",
    b"\x28\xb5\x2f\xfd": "a zstd file; unpack it (zstd -d)",
    b"\xfd7zXZ": "an xz file; unpack it (xz -d)",
    b"BZh": "a bzip2 file; unpack it (bzip2 -d)",
    b"PK\x03\x04": "a zip file; unpack it",
    b"PAR1": "a Parquet file; write its texts as .jsonl",
    b"ARROW1": "an Arrow file; write its texts as .jsonl",
    b"%PDF-": "a PDF file; extract its text",
}


def open_bytes(path: str, stack: contextlib.ExitStack) -> tuple[IO[bytes], Callable[[], int]]:
    """Open a file that `stack` closes.

    Returns:
      The file of uncompressed bytes, and a function that returns how many stored bytes were read.
    """
    if is_remote(path):
        raw = io.BufferedReader(
            RemoteFile(stack.enter_context(as_path(path).open("rb"))), BUFFER_BYTES
        )
    else:
        file = open(path, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115 - `stack` closes it
        raw = stack.enter_context(file)
    if path.endswith(".gz"):
        return cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=raw))), raw.tell
    return raw, raw.tell


def refuse_binary(file: IO[bytes], path: str) -> None:
    """Raise ValueError if a file, which is at its beginning, is of a kind that is not text."""
    head = cast(Any, file).peek(PROBED_BYTES)[:PROBED_BYTES]
    refuse_wide_encoding(head, path)
    for beginning, kind in BINARY_BEGINNINGS.items():
        if head.startswith(beginning):
            raise ValueError(f"{path}: is not text but {kind}")


def refuse_wide_encoding(head: bytes, path: Any) -> None:
    """Raise ValueError if the first bytes of a file are of UTF-16 or UTF-32."""
    if encoding := find_wide_encoding(head):
        raise ValueError(
            f"{path}: is not UTF-8 text but {encoding}; rewrite it: "
            f"iconv -f {encoding} -t UTF-8 OLD > NEW"
        )


def find_wide_encoding(head: bytes) -> str | None:
    """Return UTF-16, UTF-32 or their variant without a mark, as iconv names it; None if neither.

    Without a mark the zeros decide: characters below 256 leave all bytes of a unit but one at 0.
    """
    for mark, encoding in WIDE_MARKS.items():
        if head.startswith(mark):
            return encoding
    for width, encoding in ((4, "UTF-32"), (2, "UTF-16")):
        units = [head[i : len(head) // width * width : width] for i in range(width)]
        if len(units[0]) < 2:
            continue
        empty = [2 * unit.count(0) > len(unit) for unit in units]
        for order, own in (("LE", 0), ("BE", width - 1)):
            if empty == [place != own for place in range(width)]:
                return encoding + order
    return None


class RemoteFile(io.RawIOBase):
    """A file that epath opens, with the interface that io.BufferedReader needs."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
