"""Files of lines and of JSON lines: those that people write, with the place of every error, and those that programs write.

Reading a corpus is something else (data/corpus/readers.py): it counts bytes to begin anywhere in a file, and mends bad UTF-8.
"""

import contextlib
import gzip
import json
import pathlib
import zlib
from collections.abc import Iterator
from typing import TextIO

BYTE_ORDER_MARK = "\ufeff"


# ---- written by people -------------------------------------------------------


@contextlib.contextmanager
def open_text(source, newline: str = "") -> Iterator[TextIO]:
    """Open a UTF-8 file, gzipped where its name ends in .gz; `newline` as `open` takes it.

    Raises FileNotFoundError, or ValueError that names the file, and the line that is not UTF-8.
    """
    path = pathlib.Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"{source}: no such file")
    read = gzip.open if path.suffix == ".gz" else open
    try:
        try:
            with read(path, "rt", encoding="utf-8", newline=newline) as file:
                yield file
        except UnicodeDecodeError as error:  # it counts bytes of a block
            with read(path, "rb") as file:
                number = next(
                    number
                    for number, line in enumerate(file, 1)
                    if line.decode("utf-8", "ignore").encode() != line
                )
            raise ValueError(
                f"{source}:{number}: not UTF-8 ({error.reason}); `iconv -f ENCODING -t UTF-8` converts a file"
            ) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{source}: the gzip file is broken or cut off ({error})") from error


def read_lines(source) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of each line that is not blank, without its end; a place is "file:number". Errors: `open_text`."""
    with open_text(source, newline="\n") as file:
        for number, line in enumerate(file, 1):
            line = line.removeprefix(BYTE_ORDER_MARK).rstrip("\r\n")  # also of files put together
            if line.strip():
                yield f"{source}:{number}", line


def read_json_lines(source) -> Iterator[tuple[str, dict]]:
    """Yield (place, object) of each line that is not blank. Raises ValueError, which names the line, for anything else."""
    for place, line in read_lines(source):
        yield place, parse_object(line, place)


def parse_object(line: str, place: str) -> dict:
    """Return the object that a line holds. Raises ValueError, which begins with `place`, where it holds none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, at character {error.pos + 1}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise ValueError(
            f"{place}: not JSON ({reason}); each line holds one whole object"
        ) from None
    if not isinstance(record, dict):
        raise ValueError(f"{place}: expected a JSON object, not {line[:80]!r}")
    return record


# ---- written by programs -----------------------------------------------------


def format_json_lines(values, ensure_ascii: bool = True) -> str:
    """Return the text of one JSON value a line, each with its end."""
    return "".join(json.dumps(value, ensure_ascii=ensure_ascii) + "\n" for value in values)


def parse_json_lines(text: str) -> list:
    """Return the value of each line, but of an incomplete last line, which a killed writer leaves.

    Raises ValueError for a line that is not JSON.
    """
    *lines, _ = text.split("\n")
    return [json.loads(line) for line in lines]
