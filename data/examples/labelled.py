"""Labelled text: examples of a text or two and a label, read and checked line by line, and written as a token store with labels.

SOURCE                       examples
FILE.jsonl[.gz]              a JSON object a line
FILE.tsv[.gz]                a line each under a line of names, tabs between the columns; quotes are text. CoLA's own files have no such line
FILE.csv[.gz]                the same with commas; a column that has any, or line breaks, stands in quotes (RFC 4180)
tfds:NAME[/CONFIG][:SPLIT]   of a TensorFlow dataset; classes by their names

The store is one of data/store/reader.py in which a document is an example and a sentence one of its texts, and beside them lie
STORE/{train,heldout}/labels.bin, float32 [D]: the number of a class in the manifest's `labels`, or a score where that is [].
"""

import csv
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from data.corpus.json_lines import open_text, read_json_lines
from data.corpus.readers import BOM
from data.corpus.sentences import WHITE

SUFFIXES = (".jsonl", ".tsv", ".csv")
BLANK = dict.fromkeys(WHITE, " ") | {
    0xFDD0: "\ufffd"
}  # as `prepare` has it: no control characters, nor the one that no text may hold
FIELD = 1 << 28  # characters of a column, at most
COLA = (
    "source",
    "label",
    "mark",
    "sentence",
)  # the columns of CoLA's own files (Warstadt et al. 2019), where nothing names them


class Columns(NamedTuple):
    """The names of the columns that hold the texts, one or two of them, and the label."""

    texts: tuple[str, ...]
    label: str


class Example(NamedTuple):
    """place: where it stands, as "file:line"."""

    texts: tuple[str, ...]
    label: str | float
    place: str


# ---- reading -----------------------------------------------------------------


def read(
    source: str, columns: Columns, label: Callable, unread: frozenset[str] = frozenset()
) -> list[Example]:
    """The examples of a source; label: a function that makes one of a value, such as `class_of`, or raises ValueError.

    unread: names of columns that no record may have, for they would be left out in silence. Raises FileNotFoundError, or ValueError that
    names file and line: for such a column, one that is missing, a text that is empty or no text, a label that `label` refuses, and a source
    without examples.
    """
    examples = []
    for place, record in records(source):
        if more := sorted(unread & record.keys()):
            told = ",".join((*columns.texts, columns.label))
            raise ValueError(
                f"{place}: a column {more[0]!r}, where the first example has only {told}: give it to all, or leave it out by --columns {told}"
            )
        examples.append(_example(record, place, columns, label))
    if not examples:
        raise ValueError(f"{source}: no examples in it")
    return examples


def records(source: str) -> Iterator[tuple[str, dict]]:
    """(place, record) of each example of a source. Raises ValueError, which names the line, for what is no record."""
    if source.startswith("tfds:"):
        from data.corpus import tfds_source

        yield from tfds_source.records(source)
        return
    suffix = pathlib.Path(source.removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{source}: labelled text is a file that ends in {', '.join(SUFFIXES)}, or .gz behind it, or tfds:NAME"
        )
    if suffix == ".jsonl":
        yield from read_json_lines(source)
        return
    with open_text(source) as file:
        yield from _table(file, source, suffix)


def _table(file, source, suffix):
    csv.field_size_limit(FIELD)
    tabs = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    how: dict[str, Any] = tabs if suffix == ".tsv" else {"strict": True}
    reader, names = csv.reader(file, **how), None
    while True:
        place = f"{source}:{reader.line_num + 1}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f"{place}: {error}; in a .csv a column that holds quotes stands in quotes, and has each of them twice"
            ) from error
        if row is None:
            return
        if not any(row):
            continue
        if names is None:
            row[0] = row[0].removeprefix(BOM.decode())
            nameless = (
                suffix == ".tsv" and len(row) == 4 and row[1] in ("0", "1") and row[2] in ("", "*")
            )
            names = COLA if nameless else row
            if len(set(names)) < len(names):
                raise ValueError(f"{place}: the line of names has one twice: {', '.join(names)}")
            if not nameless:
                continue
        if len(row) != len(names):
            raise ValueError(
                f"{place}: {len(row)} columns, the first line names {len(names)} ({', '.join(names)})"
            )
        yield place, dict(zip(names, row))


def _example(record, place, columns, label):
    for name in (*columns.texts, columns.label):
        if name not in record:
            told = ", ".join(map(repr, record))[:200]
            raise ValueError(
                f"{place}: no column {name!r}; there are {told}. --columns names the texts and the label"
            )
    texts = tuple(text_of(record[name], f"{place}: column {name!r}") for name in columns.texts)
    try:
        return Example(texts, label(record[columns.label]), place)
    except ValueError as error:
        raise ValueError(f"{place}: column {columns.label!r}: {error}") from None


def text_of(value, place: str) -> str:
    """A text as the vocabulary reads it. Raises ValueError, which begins with `place`, where there is none."""
    if not isinstance(value, str):
        raise ValueError(f"{place} is {type(value).__name__}, not a text")
    text = tidy(value)
    if not text:
        raise ValueError(f"{place} is empty")
    return text


def tidy(text: str) -> str:
    """A text without what no vocabulary reads: halves of characters, control characters, blanks around it."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").translate(BLANK).strip()
    )


# ---- labels ------------------------------------------------------------------


def class_of(value) -> str:
    """The name of a class: a text, or a whole number."""
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        hint = "; test parts of a benchmark have no labels" if value is None else ""
        raise ValueError(
            f"{value!r} is no name of a class, which is a text or a whole number{hint}"
        )
    return str(value).strip()


def score_of(value) -> float:
    """A score: a finite number, or a text that spells one."""
    try:
        score = (
            math.nan
            if isinstance(value, bool) or not isinstance(value, (str, int, float))
            else float(value)
        )
    except (ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"{value!r} is no score, which is a number")
    return score


def alike(examples: list[Example]) -> str:
    """Where all examples have the same label, words that say so; else ""."""
    labels = {example.label for example in examples}
    return (
        "" if len(labels) > 1 else f"all {len(examples):,} examples have the label {labels.pop()!r}"
    )


def check_several(examples: list[Example]) -> None:
    """Raise ValueError, which names the source, where all examples have the same label."""
    if told := alike(examples):
        raise ValueError(
            f"{examples[0].place.rpartition(':')[0]}: {told}; nothing can be learned from that"
        )


def classes(examples: list[Example]) -> tuple[str, ...]:
    """The classes in examples: by size where all are numbers, else in alphabetical order."""
    names = {str(example.label) for example in examples}
    numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if numbers else None))


def numbered(examples: list[Example], names: tuple[str, ...]) -> np.ndarray:
    """float32 [D]: the number of each label in `names`, or the scores themselves without names. Raises ValueError for a label that is not there."""
    if not names:
        return np.array([example.label for example in examples], np.float32)
    numbers: dict[Any, int] = {name: number for number, name in enumerate(names)}
    for example in examples:
        if example.label not in numbers:
            known = ", ".join(map(repr, names))
            raise ValueError(
                f"{example.place}: the label {example.label!r} is not one of {known}, which are those that are learned"
            )
    return np.array([numbers[example.label] for example in examples], np.float32)
