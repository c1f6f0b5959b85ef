"""Files become documents: plain or gzipped, a document per file, per blank-line block, per line or per JSON record.

Or pairs, a source and its target: two columns of a line, or two fields of a JSON record. A pair is a document of two lines.

What cannot be read is one ValueError that names the file and the line; what can be mended is mended, and the record
says so (`mended`), to be counted. Reading runs nothing and writes nothing: text is decoded, JSON parsed, gzip inflated
a part at a time, and a document of more than LARGEST bytes refused before it fills the memory.
"""

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from data.corpus.paths import as_path, is_remote
from data.corpus.sentences import WHITE

LARGEST = 1 << 28
BUFFER = 1 << 20
BOM = b"\xef\xbb\xbf"
NOT_UTF8 = "documents with bytes that are not UTF-8 (replaced by U+FFFD)"
SURROGATES = "documents with half a surrogate pair (replaced by U+FFFD)"


class Record(NamedTuple):
    """A document. raw: valid UTF-8. line: where it begins, from 1 at the piece's start. consumed: bytes read so far."""

    raw: bytes
    line: int
    consumed: int
    mended: str | None = None


def read_file(path: str, form: str, start: int, stop: int | None, field: str) -> Iterator[Record]:
    """The documents that begin in bytes [start, stop) of a file; stop None reads to its end."""
    with contextlib.ExitStack() as stack:
        file, consumed = _open(path, stack)
        try:
            yield from FORMS[form](_Lines(file, path, start, stop), consumed, field)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: the gzip file is broken or cut off ({error})") from error


def line_number(path: str, start: int, line: int) -> int:
    """A line counted from byte `start` of a file, or from the first whole line behind it, counted from the top."""
    if not start:
        return line
    with contextlib.ExitStack() as stack:
        file, _ = _open(path, stack)
        before, left = 0, start - 1
        while left > 0 and (block := file.read(min(left, BUFFER))):
            before, left = before + block.count(b"\n"), left - len(block)
    return before + 1 + line


class _Lines:
    """Lines of a part of a file: those that begin in [start, stop), and by `more` those behind it.

    Each is (line, offset of its first byte). `number` counts them from 1, at the first line that begins in the part.
    """

    def __init__(self, file, path: str, start: int, stop: int | None):
        self.file, self.path, self.start, self.number = file, path, start, 0
        self.stop = float("inf") if stop is None else stop
        self.offset = self.begin = 0
        if start:
            file.seek(start - 1)
            self.offset = start - 1 + self._skip_line()

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        while self.offset < self.stop and (line := self._next()):
            yield line, self.begin

    def more(self) -> Iterator[tuple[bytes, int]]:
        """Lines without regard to `stop`."""
        while line := self._next():
            yield line, self.begin

    def error(self, what: str, line: int | None = None) -> ValueError:
        number = line_number(self.path, self.start, self.number if line is None else line)
        return ValueError(f"{self.path}, line {number}: {what}")

    def too_large(self, line: int) -> ValueError:
        return self.error(
            f"a document of more than {LARGEST >> 20} MiB; see --document block or record", line
        )

    def _next(self) -> bytes:
        self.begin = self.offset  # of a byte order mark where there is one
        line = self.file.readline(LARGEST + 1)
        self.number += bool(line)
        if len(line) > LARGEST:
            raise self.too_large(self.number)
        if not self.offset and line.startswith(BOM):
            self.offset, line = len(BOM), line[len(BOM) :]
        self.offset += len(line)
        return line

    def _skip_line(self) -> int:
        skipped = 0
        while part := self.file.readline(BUFFER):
            skipped += len(part)
            if part.endswith(b"\n"):
                break
        return skipped


def _whole(lines: _Lines, consumed: Callable[[], int], field: str) -> Iterator[Record]:
    raw = lines.file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise lines.too_large(1)
    yield Record(*_utf8(raw.removeprefix(BOM), 1, consumed()))


def _lines(lines: _Lines, consumed: Callable[[], int], field: str) -> Iterator[Record]:
    for line, _ in lines:
        if not line.isspace():
            yield Record(*_utf8(line, lines.number, consumed()))


def _blocks(lines: _Lines, consumed: Callable[[], int], field: str) -> Iterator[Record]:
    """What blank lines separate. A part owns what follows the first blank line in it, up to the first one behind it."""
    block, size, first = [], 0, 1
    owned = not lines.start
    for line, offset in lines.more():
        blank = line.isspace()
        if not owned:
            if offset >= lines.stop:
                return
            owned = blank
        elif not blank:
            first = first if block else lines.number
            block.append(line)
            size += len(line)
            if size > LARGEST:
                raise lines.too_large(first)
        if blank and block:
            yield Record(*_utf8(b"".join(block), first, consumed()))
            block, size = [], 0
        if blank and offset >= lines.stop:
            return
    if block:
        yield Record(*_utf8(b"".join(block), first, consumed()))


def _json(lines: _Lines, consumed: Callable[[], int], field: str) -> Iterator[Record]:
    for (raw,), *place in _fields(lines, consumed, [field]):
        yield Record(raw, *place)


def _json_pairs(lines: _Lines, consumed: Callable[[], int], field: str) -> Iterator[Record]:
    for sides, *place in _fields(lines, consumed, field.split(",")):
        try:
            yield Record(pair(*sides), *place)
        except ValueError as error:
            raise lines.error(str(error)) from None


def _columns(lines: _Lines, consumed: Callable[[], int], field: str) -> Iterator[Record]:
    for line, _ in lines:
        line = line.rstrip(b"\r\n")
        if not line:
            continue
        raw, number, read, mended = _utf8(line, lines.number, consumed())
        sides = raw.split(b"\t")
        try:
            if len(sides) != 2:
                raise ValueError(
                    f"{len(sides) - 1} tabs; a pair is a source and its target, with one tab between them"
                )
            yield Record(pair(*sides), number, read, mended)
        except ValueError as error:
            raise lines.error(str(error)) from None


def pair(source: bytes, target: bytes) -> bytes:
    """A pair as a document of two lines. Raises ValueError where there is nothing on one side."""
    sides = [side.strip(WHITE).replace(b"\n", b" ") for side in (source, target)]
    for name, side in zip(("source", "target"), sides):
        if not side:
            raise ValueError(f"the {name} is empty")
    return b"\n".join(sides)


def _fields(lines: _Lines, consumed: Callable[[], int], names: list[str]) -> Iterator[tuple]:
    """(texts of the fields in UTF-8, line, consumed, mended) of each JSON record."""
    for line, _ in lines:
        if line.isspace():
            continue
        number, read, mended = lines.number, consumed(), None
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text, mended = line.decode("utf-8", "replace"), NOT_UTF8
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise lines.error(f"not a JSON record ({error})") from error
        texts = []
        for field in names:
            if not isinstance(record, dict) or field not in record:
                has = (
                    f"an object with {', '.join(map(repr, record))}"
                    if isinstance(record, dict)
                    else type(record).__name__
                )
                raise lines.error(
                    f"no field {field!r} in the record, which is {has[:200]}; --field names the text"
                )
            text = record[field]
            if not isinstance(text, str):
                raise lines.error(f"field {field!r} is {type(text).__name__}, not a text")
            try:
                texts.append(text.encode())
            except UnicodeEncodeError:
                texts.append(
                    text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
                )
                mended = SURROGATES
        yield texts, number, read, mended


FORMS = {
    "file": _whole,
    "record": _lines,
    "block": _blocks,
    "jsonl": _json,
    "pair_jsonl": _json_pairs,
    "pair_tsv": _columns,
}


def _utf8(raw: bytes, line: int, consumed: int) -> tuple[bytes, int, int, str | None]:
    try:
        raw.decode()
        return raw, line, consumed, None
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode(), line, consumed, NOT_UTF8


def _open(path: str, stack: contextlib.ExitStack):
    """A file of uncompressed bytes, and a function that tells how many stored ones were read."""
    if is_remote(path):
        raw = io.BufferedReader(_Remote(stack.enter_context(as_path(path).open("rb"))), BUFFER)
    else:
        raw = stack.enter_context(open(path, "rb", buffering=BUFFER))  # noqa: SIM115 - `stack` closes it
    if path.endswith(".gz"):
        return stack.enter_context(gzip.GzipFile(fileobj=raw)), raw.tell
    return raw, raw.tell


class _Remote(io.RawIOBase):
    """What epath opens in a bucket, with the interface that Python's own buffering needs."""

    def __init__(self, file):
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
