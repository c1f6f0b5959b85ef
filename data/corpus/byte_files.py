"""Open local and remote files, plain or gzipped, as uncompressed bytes."""

import contextlib
import gzip
import io
from collections.abc import Callable
from typing import IO, Any, cast

from data.corpus.paths import as_path, is_remote

BUFFER_BYTES = 1 << 20


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
