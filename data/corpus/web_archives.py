"""Read the texts of web archives: the conversion records of WET and WARC files (ISO 28500).

A record is a line WARC/1.0, headers, a blank line, and as many bytes as its Content-Length says.
Records of other types, such as the pages as they were fetched, are skipped. A file may be packed
record by record.
"""

import re
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple

from data.corpus.record_texts import NOT_UTF8

HEADER_BYTES = 1 << 16  # of all headers of a record
TEXT_BYTES = 1 << 26  # of the largest text; Common Crawl cuts pages at 5 MB
BLOCK_BYTES = 1 << 20  # that are read at a time
VERSION = re.compile(rb"WARC/\d+\.\d+[ \t]*\r?\n")
LENGTH = re.compile(r"\d{1,18}", re.ASCII)
TEXT_TYPE, PAGE_TYPES = "conversion", ("response", "resource")
# {field of a record: the header that has it}; the field `text` is the text.
HEADERS = {
    "uri": "warc-target-uri",
    "date": "warc-date",
    "language": "warc-identified-content-language",
}


class Conversion(NamedTuple):
    """A text of an archive.

    Attributes:
      fields: {text, uri, date, language and headers in lower case: value}, those that it has.
      consumed: stored bytes of the file read so far.
      repair: why the text was repaired; None if it is UTF-8.
    """

    fields: dict[str, Any]
    consumed: int
    repair: str | None


def read_conversions(
    file: IO[bytes], path: str, consumed: Callable[[], int]
) -> Iterator[Conversion]:
    """Yield the conversion records of a file.

    Raises:
      ValueError: a record is broken, cut off or too large, or the file has pages and no texts.
    """
    types: set[str] = set()
    number = 0
    while (headers := _read_headers(file, f"{path}, record {number + 1}")) is not None:
        number += 1
        place, kind = f"{path}, record {number}", headers.get("warc-type", "").lower()
        types.add(kind)
        length = _read_length(headers, place)
        if kind != TEXT_TYPE:
            _skip(file, length, place)
            continue
        if length > TEXT_BYTES:
            raise ValueError(f"{place}: a text of more than {TEXT_BYTES >> 20} MiB")
        raw = b"".join(_read_blocks(file, length, place))
        text = raw.decode("utf-8", "replace")
        fields = headers | {
            name: headers[header].strip("<>")
            for name, header in HEADERS.items()
            if header in headers
        }
        repair = None if text.encode() == raw else NOT_UTF8
        yield Conversion(fields | {"text": text}, consumed(), repair)
    if TEXT_TYPE not in types and types.intersection(PAGE_TYPES):
        raise ValueError(
            f"{path}: has pages as they were fetched and no texts (records of the type "
            f"{TEXT_TYPE}): name the .wet file of the archive, or extract the texts first"
        )


def _read_headers(file: IO[bytes], place: str) -> dict[str, str] | None:
    """Return the headers of the next record, their names in lower case; None at the end."""
    line = b"\n"
    while not line.strip(b"\r\n") and line:
        line = file.readline(HEADER_BYTES)
    if not line:
        return None
    if not VERSION.fullmatch(line):
        raise ValueError(f"{place}: begins with {line[:40]!r}, not with WARC/1.0")
    headers: dict[str, str] = {}
    size, name = 0, ""
    while True:
        line = file.readline(HEADER_BYTES)
        size += len(line)
        if size >= HEADER_BYTES:
            raise ValueError(f"{place}: headers of more than {HEADER_BYTES >> 10} KiB")
        if not line.endswith(b"\n"):
            raise ValueError(f"{place}: the file ends within its headers")
        if not line.strip(b"\r\n"):
            return headers
        text = line.decode("utf-8", "replace").strip("\r\n")
        if text[0] in " \t" and name:
            headers[name] += " " + text.strip()
            continue
        name, colon, value = text.partition(":")
        name = name.strip().lower()
        if not colon or not name:
            raise ValueError(f"{place}: {text[:80]!r} is no header")
        if name == "content-length" and name in headers:
            raise ValueError(f"{place}: has two headers Content-Length")
        headers[name] = value.strip()


def _read_length(headers: dict[str, str], place: str) -> int:
    """Return the bytes of a record. Raises ValueError for a length that is missing or no number."""
    length = headers.get("content-length", "")
    if not LENGTH.fullmatch(length):
        raise ValueError(f"{place}: its Content-Length is {length[:40]!r}, no number of bytes")
    return int(length)


def _read_blocks(file: IO[bytes], length: int, place: str) -> Iterator[bytes]:
    """Yield the next bytes of a file. Raises ValueError if it ends before."""
    left = length
    while left:
        if not (block := file.read(min(left, BLOCK_BYTES))):
            raise ValueError(
                f"{place}: the file ends {left:,} bytes before the record does; was it fetched "
                "whole?"
            )
        left -= len(block)
        yield block


def _skip(file: IO[bytes], length: int, place: str) -> None:
    """Read and drop the next bytes of a file, a block at a time."""
    for _ in _read_blocks(file, length, place):
        pass
