"""The lines of a part of a file, and their numbers in error messages."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import IO

from data.corpus.byte_files import BUFFER_BYTES, open_bytes

MAX_DOCUMENT_BYTES = 1 << 28  # bytes of the largest document
BOM = b"\xef\xbb\xbf"


class LineReader:
    """Iterates over (line, offset of its first byte) of the lines that begin in [start, stop).

    Attributes:
      limit: bytes of the largest document.
      number: number of the current line, counted from 1 at the first line that begins in the range.
      begin: offset of the current line.
      offset: offset of the next line.
    """

    def __init__(
        self,
        file: IO[bytes],
        path: str,
        start: int,
        stop: int | None,
        skips_bad: bool,
        more_fields: Sequence[str] = (),
        keeps_case: bool = False,
    ) -> None:
        self.file, self.path, self.start, self.number = file, path, start, 0
        self.skips_bad, self.more_fields, self.keeps_case = skips_bad, more_fields, keeps_case
        self.stop = float("inf") if stop is None else stop
        self.limit, self.offset, self.begin = MAX_DOCUMENT_BYTES, 0, 0
        if start:
            file.seek(start - 1)
            self.offset = start - 1 + self._skip_line()

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        while self.offset < self.stop and (line := self._read_line()):
            yield line, self.begin

    def iterate_past_stop(self) -> Iterator[tuple[bytes, int]]:
        """Iterate over the lines to the end of the file, regardless of `stop`."""
        while line := self._read_line():
            yield line, self.begin

    def make_error(self, problem: str, line: int | None = None) -> ValueError:
        """Return an error that names the file and a line, by default the current one."""
        number = find_line_number(self.path, self.start, self.number if line is None else line)
        return ValueError(f"{self.path}, line {number}: {problem}")

    def make_size_error(self, line: int) -> ValueError:
        """Return the error for a document above the size limit."""
        return self.make_error(
            f"a document of more than {self.limit >> 20} MiB; "
            "to cut the file into documents, use --document block or record",
            line,
        )

    def _read_line(self) -> bytes:
        self.begin = self.offset  # before a byte order mark, if the line has one
        line = self.file.readline(self.limit + 1)
        self.number += bool(line)
        if len(line) > self.limit:
            raise self.make_size_error(self.number)
        if not self.offset and line.startswith(BOM):
            self.offset, line = len(BOM), line[len(BOM) :]
        self.offset += len(line)
        return line

    def _skip_line(self) -> int:
        """Skip to the next line and return the number of bytes skipped."""
        skipped = 0
        while part := self.file.readline(BUFFER_BYTES):
            skipped += len(part)
            if part.endswith(b"\n"):
                break
        return skipped


def find_line_number(path: str, start: int, line: int) -> int:
    """Return the number of a line in its file.

    Args:
      start: byte at which the count of `line` starts, or just before the line where it starts.
      line: number of the line, counted from there.
    """
    if not start:
        return line
    with contextlib.ExitStack() as stack:
        file, _ = open_bytes(path, stack)
        lines_before, remaining = 0, start - 1
        while remaining > 0 and (block := file.read(min(remaining, BUFFER_BYTES))):
            lines_before += block.count(b"\n")
            remaining -= len(block)
    return lines_before + 1 + line
