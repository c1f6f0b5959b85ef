"""Open local and remote files, plain or packed by gzip or Zstandard, as uncompressed bytes."""

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable
from typing import IO, Any, cast

from data.corpus.other_formats import HEAD_BYTES, refuse_other_format
from data.corpus.paths import is_remote, strip_query
from data.members import call_later, import_extra

open_remote = call_later("data.corpus.urls:open_remote")

BUFFER_BYTES = 1 << 20
# Of Zstandard that are unpacked at once: no block of it unpacks to more than 128 KiB, so a bomb of
# these bytes, of which a block has 3 or more, makes at most 21 MiB, and twice that while joined.
PACKED_BYTES = 1 << 9
PACKED = (".gz", ".zst")  # ends of the names of files that are unpacked
# {first bytes of a file: its encoding}; UTF-32's mark begins with one of UTF-16.
WIDE_MARKS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


def open_bytes(path: str, stack: contextlib.ExitStack) -> tuple[IO[bytes], Callable[[], int]]:
    """Open a file that `stack` closes.

    Returns:
      The file of uncompressed bytes, and a function that returns how many stored bytes were read.
    """
    if is_remote(path):
        raw = open_remote(path, stack)
    else:
        file = open(path, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115 - `stack` closes it
        raw = stack.enter_context(file)
    name = strip_query(path)
    if name.endswith(".gz"):
        return cast(IO[bytes], stack.enter_context(gzip.GzipFile(fileobj=raw))), raw.tell
    if name.endswith(".zst"):
        return io.BufferedReader(ZstandardFile(raw, path), BUFFER_BYTES), raw.tell
    return raw, raw.tell


class UrlError(OSError):
    """A file of https:// or s3:// cannot be read; the message names the URL and the remedy."""


class BrokenZstandardError(Exception):
    """A Zstandard file is broken or cut off."""


class ZstandardFile(io.RawIOBase):
    """The unpacked bytes of a Zstandard file, of one frame or several."""

    def __init__(self, file: IO[bytes], path: str) -> None:
        zstandard = import_extra("zstandard", "parquet", f"{path}: unpacking it")
        self._file, self._error = file, zstandard.ZstdError
        self._make = zstandard.ZstdDecompressor().decompressobj
        self._frame, self._packed, self._unpacked = None, b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._unpacked:
            if not (packed := self._packed or self._file.read(PACKED_BYTES)):
                if self._frame is not None:
                    raise BrokenZstandardError("it ends within a frame")
                return 0
            self._frame = self._frame or self._make()
            try:
                self._unpacked = memoryview(self._frame.decompress(packed))
            except self._error as error:
                raise BrokenZstandardError(str(error)) from error
            self._packed = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        size = min(len(buffer), len(self._unpacked))
        buffer[:size], self._unpacked = self._unpacked[:size], self._unpacked[size:]
        return size


BROKEN = (gzip.BadGzipFile, EOFError, zlib.error, BrokenZstandardError)


def explain_broken(path: str, error: BaseException) -> ValueError:
    """Return the error for one of `BROKEN` that reading a packed file raised."""
    kind = "Zstandard" if isinstance(error, BrokenZstandardError) else "gzip"
    return ValueError(f"{path}: the {kind} file is broken or cut off ({error})")


def refuse_head(head: bytes, path: Any, takes_text: bool = False) -> None:
    """Raise ValueError if a file that begins with these unpacked bytes is no text in UTF-8.

    takes_text: whether other formats that are text, such as FASTA, are read as they are.
    """
    refuse_other_format(head, path, takes_text)
    if encoding := find_wide_encoding(head):
        raise ValueError(
            f"{path}: is not UTF-8 text but {encoding}; rewrite it: "
            f"iconv -f {encoding} -t UTF-8 OLD > NEW"
        )


def peek_head(file: IO[bytes]) -> bytes:
    """Return the first bytes of a file that is at its beginning, and stay there."""
    return cast(Any, file).peek(HEAD_BYTES)[:HEAD_BYTES]


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
