"""Read tables of examples: lines of columns after a line of their names."""

import csv
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from data.corpus.readers import BOM
from data.examples.bad_examples import BadExamples, guard_example

MAX_COLUMN_CHARACTERS = 1 << 28  # largest number of characters of a column
# The columns of CoLA's own files (Warstadt et al. 2019), which have no line of names.
COLA_COLUMNS: tuple[str, ...] = ("source", "label", "mark", "sentence")
OPEN_QUOTE = "unexpected end of data"  # csv's error for a quote that no later one closes


def read_table(
    file: Iterable[str], source: str, suffix: str, bad: BadExamples | None = None
) -> Iterator[tuple[str, dict[str, str]]]:
    """Iterate over (location, record) of the lines of a table.

    Args:
      file: the lines; lines of a .tsv end at "\\n" alone (`find_newline`).
      suffix: ".tsv", in which quotes are text, or ".csv".

    Raises:
      ValueError: a bad line, a bad line of names, or a quote that is not closed, which leaves
        nothing of the file to go on with; the message names the line.
    """
    csv.field_size_limit(MAX_COLUMN_CHARACTERS)
    lines = drop_mark(file)
    reader: Any = TabReader(lines) if suffix == ".tsv" else csv.reader(lines, strict=True)
    names = None
    while True:
        place = f"{source}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            problem = (
                f"{place}: {error}; in a .csv a column that holds quotes is itself in quotes, "
                "and each of its quotes is doubled"
            )
            is_end = names is None or OPEN_QUOTE in str(error)
            with guard_example(None if is_end else bad):
                raise ValueError(problem) from error
            continue
        if row is None:
            return
        if not any(row):
            continue
        row = drop_empty_end(row, len(names) if names else 1)
        if names is None:
            names, is_data = find_names(row, place, suffix)
            if not is_data:
                continue
        record = None
        with guard_example(bad):
            record = make_record(row, names, place)
        if record is not None:
            yield place, record


class TabReader:
    """Rows of lines with tabs between the columns, as `csv.reader` has them.

    A carriage return within a column belongs to it; csv would end the line there.

    Attributes:
      line_num: number of lines read.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines, self.line_num = iter(lines), 0

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        line = next(self.lines)
        self.line_num += 1
        return line.rstrip("\r\n").split("\t")


def drop_mark(lines: Iterable[str]) -> Iterator[str]:
    """Iterate over lines, the first of them without the byte order mark of Excel and pandas."""
    lines = iter(lines)
    yield from (line.removeprefix(BOM.decode()) for line in itertools.islice(lines, 1))
    yield from lines


def drop_empty_end(row: list[str], least: int) -> list[str]:
    """Return a line without the empty columns at its end, of which Excel writes some.

    least: number of columns that are not dropped: those with a name.
    """
    while len(row) > least and not row[-1]:
        row = row[:-1]
    return row


def find_newline(suffix: str) -> str:
    """Return the `newline` to open a table with, so that a "\\r" in a column ends no line."""
    return "\n" if suffix == ".tsv" else ""


def find_names(row: list[str], place: str, suffix: str) -> tuple[list[str], bool]:
    """Return the names of the columns from the first line, and whether it is an example itself.

    Raises ValueError if a name appears twice.
    """
    is_nameless = (
        suffix == ".tsv" and len(row) == 4 and row[1] in ("0", "1") and row[2] in ("", "*")
    )
    names = [*COLA_COLUMNS] if is_nameless else row
    if len(set(names)) < len(names):
        raise ValueError(f"{place}: the line of names has one twice: {', '.join(names)}")
    return names, is_nameless


def make_record(row: list[str], names: list[str], place: str) -> dict[str, str]:
    """Return a line as a record; raise ValueError if it has another number of columns."""
    if len(row) != len(names):
        raise ValueError(
            f"{place}: {len(row)} columns, the first line names {len(names)} ({', '.join(names)})"
        )
    return dict(zip(names, row))
