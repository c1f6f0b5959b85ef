"""Parse a line of a file of records: JSON, a source and its target with a tab between them, or the
SMILES of a molecule.

A line that is no record raises a ValueError, to which the caller adds the file and the line.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from data.corpus.record_texts import NOT_UTF8, join_pair, join_text, read_values
from data.corpus.untrusted import find_excess_of_line

# (record, names of fields) -> the document, and why it was repaired
MakeDocument = Callable[[Any, Sequence[str]], tuple[bytes, str | None]]
# (document, why it was repaired, values of further fields)
ParsedLine = tuple[bytes, str | None, tuple[str | None, ...]]


def parse_json_line(
    make: MakeDocument, line: bytes, field: str, more_fields: Sequence[str]
) -> ParsedLine:
    """Return the document of a line that is a JSON record."""
    record, repair = _parse_json(line)
    raw, reason = make(record, split_names(make, field))
    return raw, reason or repair, read_values(record, more_fields)


def split_names(make: MakeDocument, field: str) -> list[str]:
    """Return the names of a record's fields; the one of a text may have a comma."""
    return [field] if make is join_text else field.split(",")


def parse_tsv_pair(line: bytes, field: str, more_fields: Sequence[str]) -> ParsedLine:
    """Return the document of a source and its target with a tab between them."""
    raw, _, _, repair = repair_utf8(line.rstrip(b"\r\n"), 0, 0)
    sides = raw.split(b"\t")
    if len(sides) != 2:
        rule = "a pair is a source and its target, with one tab between them"
        raise ValueError(f"{len(sides) - 1} tabs; {rule}")
    return join_pair(*sides), repair, ()


def parse_molecule(line: bytes, field: str, more_fields: Sequence[str]) -> ParsedLine:
    """Return the SMILES of a line: its first word, after which there may be a name."""
    raw, _, _, repair = repair_utf8(line.split()[0], 0, 0)
    return raw, repair, ()


def _parse_json(line: bytes) -> tuple[Any, str | None]:
    """Return the JSON value of a line, and why it was repaired."""
    repair = None
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text, repair = line.decode("utf-8", "replace"), NOT_UTF8
    if problem := find_excess_of_line(line):
        raise ValueError(f"the JSON record {problem}")
    try:
        return json.loads(text), repair
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a JSON record ({error})") from error


def repair_utf8(raw: bytes, line: int, consumed: int) -> tuple[bytes, int, int, str | None]:
    """Return the fields of a document, with invalid UTF-8 replaced by U+FFFD."""
    try:
        raw.decode()
        return raw, line, consumed, None
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace").encode(), line, consumed, NOT_UTF8
