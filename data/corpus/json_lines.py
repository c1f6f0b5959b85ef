"""Read and write text files line by line, and JSON lines.

Files written by people are checked: each error names the file and the line. Files written by
programs are read strictly, except for an incomplete last line. Corpora have their own readers
(data/corpus/readers.py), which start anywhere in a file and repair invalid UTF-8.
"""

import contextlib
import gzip
import io
import json
import os
import pathlib
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from data.corpus.byte_files import refuse_head
from data.corpus.other_formats import HEAD_BYTES, explain_line
from data.corpus.paths import is_remote
from data.corpus.untrusted import check_regular, find_excess_of_line

MAX_LINE = 1 << 24  # characters; a tokenizer takes up to a hundred bytes for each
MAX_FILE = 1 << 28  # of a file that is read as a whole
BYTE_ORDER_MARK = "\ufeff"


# ---- written by people -------------------------------------------------------


class BoundedText(io.TextIOWrapper):
    """A UTF-8 file whose lines are bounded: half a megabyte of gzip may unpack to one of 300 MB."""

    def __init__(self, file: Any, source: str | os.PathLike[str], newline: str) -> None:
        super().__init__(file, encoding="utf-8", newline=newline)
        self._source, self._number = source, 0

    def __next__(self) -> str:
        if not (line := self.readline()):
            raise StopIteration
        return line

    def readline(self, size: int | None = -1) -> str:
        """Return the next line; raise ValueError for one of more than MAX_LINE characters."""
        line = super().readline(MAX_LINE + 1)
        self._number += 1
        if len(line) > MAX_LINE:
            raise ValueError(
                f"{self._source}:{self._number}: a line of more than {MAX_LINE:,} characters; give "
                "a text a line, and cut a longer one into several"
            )
        return line

    def read(self, size: int | None = -1) -> str:
        """Return the whole file; raise ValueError for one of more than MAX_FILE characters."""
        text = super().read(MAX_FILE + 1)
        if len(text) > MAX_FILE:
            raise ValueError(
                f"{self._source}: more than {MAX_FILE:,} characters; cut it into several files"
            )
        return text


@contextlib.contextmanager
def open_text(
    source: str | os.PathLike[str], newline: str = "", takes_text: bool = False
) -> Iterator[TextIO]:
    """Open a UTF-8 text file; a file whose name ends in .gz is decompressed.

    Args:
      newline: as for the built-in `open`.
      takes_text: whether formats of others that are text, such as FASTA, are read as they are.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is a folder or a pipe, of another format (names it and a command), not UTF-8
        (names the line, or the encoding if it is UTF-16 or UTF-32), has too long a line, or the
        gzip data is broken.
    """
    path = pathlib.Path(source)
    if not path.exists():
        where = "; it is read from this machine only: copy it here" if is_remote(source) else ""
        raise FileNotFoundError(f"{source}: no such file{where}")
    check_regular(
        path, path.stat()
    )  # several readers read a file twice, which a pipe does not allow
    read: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with read(path, "rb") as file:
            refuse_head(file.read(HEAD_BYTES), source, takes_text)
        try:
            with BoundedText(read(path, "rb"), source, newline) as file:
                yield file
        except UnicodeDecodeError as error:  # its position counts from a block, not from the file
            with read(path, "rb") as file:
                number, line = next(
                    (number, line)
                    for number, line in enumerate(file, 1)
                    if line.decode("utf-8", "ignore").encode() != line
                )
            remedy = (
                "it has NUL bytes, so it is a binary file, not text"
                if b"\0" in line
                else "`iconv -f ENCODING -t UTF-8` converts a file"
            )
            raise ValueError(f"{source}:{number}: not UTF-8 ({error.reason}); {remedy}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{source}: the gzip file is broken or cut off ({error})") from error


def read_lines(source: str | os.PathLike[str]) -> Iterator[tuple[str, str]]:
    """Yield ("file:number", line without its end) of each line that is not blank.

    Raises the errors of `open_text`.
    """
    for place, line in read_all_lines(source):
        if line.strip():
            yield place, line


def read_all_lines(
    source: str | os.PathLike[str], takes_text: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield ("file:number", line without its end) of each line, blank ones as well.

    Takes `takes_text`, and raises the errors, of `open_text`.
    """
    with open_text(source, newline="\n", takes_text=takes_text) as file:
        for number, line in enumerate(file, 1):
            # A concatenation of files may have a byte order mark in any line.
            yield f"{source}:{number}", line.removeprefix(BYTE_ORDER_MARK).rstrip("\r\n")


def read_json_lines(source: str | os.PathLike[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("file:number", JSON object) of each line that is not blank.

    Raises the errors of `open_text`, and ValueError for a line that is not a JSON object.
    """
    for place, line in read_lines(source):
        yield place, parse_object(line, place)


def parse_object(line: str, place: str) -> dict[str, Any]:
    """Parse one line as a JSON object.

    Raises:
      ValueError: if the line is not JSON, not an object, or has too many values; the message
        begins with `place`.
    """
    if problem := find_excess_of_line(line):
        raise ValueError(f"{place}: {problem}")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, at character {error.pos + 1}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise ValueError(
            f"{place}: not JSON ({reason}); {_describe_records(line, place)}"
        ) from None
    if not isinstance(record, dict):
        raise ValueError(
            f"{place}: expected a JSON object, not {line[:80]!r}; {_describe_records(line, place)}"
        )
    return record


def _describe_records(line: str, place: str) -> str:
    """Return the rule of a file with an object a line or, if it is other JSON, a command."""
    return explain_line(line, place.rpartition(":")[0]) or "each line holds one whole object"


# ---- written by programs -----------------------------------------------------


def replace_nonfinite(value: Any) -> Any:
    """Return a JSON value with null in the place of each number that no float holds.

    These are NaN, the infinities, which JSON lacks, and integers beyond the floats.
    """
    if isinstance(value, dict):
        return {key: replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_nonfinite(item) for item in value]
    limit = sys.float_info.max
    return None if isinstance(value, int | float) and not -limit <= value <= limit else value


def format_json(value: Any, ensure_ascii: bool = True, indent: int | None = None) -> str:
    """Return a value as JSON that every program reads: null in the place of NaN and infinities."""
    return json.dumps(
        replace_nonfinite(value), ensure_ascii=ensure_ascii, indent=indent, allow_nan=False
    )


def format_json_lines(values: Iterable[Any], ensure_ascii: bool = True) -> str:
    """Return the values as JSON, one a line, each line with its end."""
    return "".join(format_json(value, ensure_ascii) + "\n" for value in values)


def parse_json_lines(text: str) -> list[Any]:
    """Return the JSON value of each line.

    A last line without an end, which a killed writer leaves, is ignored. Raises ValueError for a
    line that is not JSON.
    """
    *lines, _ = text.split("\n")
    return [json.loads(line) for line in lines]
