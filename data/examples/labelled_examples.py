"""Labelled text: read and check examples of one or two texts and a label.

SOURCE                       examples
FILE.jsonl[.gz]              a JSON object a line
FILE.tsv[.gz]                a line each after a line of names, tabs between the columns; quotes are
                             text. CoLA's own files have no line of names
FILE.csv[.gz]                the same with commas; a column that has commas or line breaks is in
                             quotes (RFC 4180)
tfds:NAME[/CONFIG][:SPLIT]   of a TensorFlow dataset; classes by their names

As a store (data/store/reader.py), a document is an example and a sentence one of its texts. The
store also has the files STORE/{train,heldout}/labels.bin, float32 [D]: the number of a class in the
manifest's `labels`, or a score where that is [].

D examples
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from data.corpus.json_lines import open_text, parse_object, read_lines
from data.corpus.other_formats import explain_other_format, explain_record
from data.corpus.sentences import WHITESPACE
from data.examples.bad_examples import BadExamples, guard_example, raise_if_empty
from data.examples.file_formats import describe_remedy, find_suffix
from data.examples.tables import find_newline, read_table

SUFFIXES = (".jsonl", ".tsv", ".csv")
COLUMNS_REMEDY = "--columns names the texts and the label for `finetune`; "
COLUMNS_REMEDY += "`evaluate` reads the columns of the run"
MAX_SCORE = float(np.finfo(np.float32).max)
# As in `prepare`: control characters become blanks, and the code point that no text may hold is
# replaced.
TO_BLANK = dict.fromkeys(WHITESPACE, " ") | {0xFDD0: "\ufffd"}


class Columns(NamedTuple):
    """Names of the columns that hold the one or two texts, and the label."""

    texts: tuple[str, ...]
    label: str


class Example(NamedTuple):
    """One labelled example.

    label: the name of a class, a score, or a vector.
    location: location of the example, as "file:line".
    """

    texts: tuple[str, ...]
    label: Any
    location: str


# ---- reading -----------------------------------------------------------------


def read_examples(
    source: str,
    columns: Columns,
    label: Callable[[Any], str | float],
    extra_columns: frozenset[str] = frozenset(),
    bad: BadExamples | None = None,
    file_format: str | None = None,
) -> list[Example]:
    """Return the examples of a source.

    Args:
      columns: names of the columns that are read.
      label: value of the label column -> label; raises ValueError for a wrong value.
      extra_columns: names of columns that no record may have, since they would be ignored silently.
      file_format: format of the file, whatever its name; see data/examples/file_formats.py.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a column of `extra_columns` or a missing column, a text that is empty or no text,
        a wrong label, or a source without examples; the message names file and line.
    """
    examples = []
    for place, record in read_records(source, bad, file_format):
        with guard_example(bad):
            if more := sorted(extra_columns & record.keys()):
                names = ",".join((*columns.texts, columns.label))
                raise ValueError(
                    f"{place}: a column {more[0]!r}, where the first example has only {names}: "
                    f"give it to all, or leave it out by --columns {names}"
                )
            examples.append(_make_example(record, place, columns, label))
    raise_if_empty(source, "examples", examples, bad)
    return examples


def read_records(
    source: str, bad: BadExamples | None = None, file_format: str | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over (location, record) of the examples of a source.

    Raises:
      ValueError: a line is not a record; the message names the line.
    """
    suffix = find_suffix(source, file_format)
    if source.startswith("tfds:"):
        from data.corpus import tfds_source

        yield from tfds_source.read_records(source)
        return
    if suffix not in SUFFIXES:
        raise ValueError(
            f"{source}: labelled text is a file that ends in {', '.join(SUFFIXES)}, "
            "or one of these and .gz, or tfds:NAME; "
            f"{explain_other_format(source, SUFFIXES) or describe_remedy(SUFFIXES)}"
        )
    if suffix == ".jsonl":
        for place, line in read_lines(source):
            record = None
            with guard_example(bad):
                record = parse_object(line, place)
            if record is not None:
                yield place, record
        return
    with open_text(source, find_newline(suffix)) as file:
        yield from read_table(file, source, suffix, bad)


def _make_example(
    record: Mapping[str, Any], place: str, columns: Columns, label: Callable[[Any], str | float]
) -> Example:
    """Return the example of a record."""
    for name in (*columns.texts, columns.label):
        if name not in record:
            known = ", ".join(map(repr, record))[:200]
            raise ValueError(
                f"{place}: no column {name!r}; there are {known}. "
                f"{explain_record(record, place.rpartition(':')[0]) or COLUMNS_REMEDY}"
            )
    named = {f"{place}: column {name!r}": record[name] for name in columns.texts}
    texts = parse_texts(named)
    try:
        return Example(texts, label(record[columns.label]), place)
    except ValueError as error:
        raise ValueError(f"{place}: column {columns.label!r}: {error}") from None


def parse_text(value: Any, place: str) -> str:
    """Return a text as the vocabulary reads it.

    Raises:
      ValueError: the value is not text, or is empty; the message begins with `place`.
    """
    if not isinstance(value, str):
        raise ValueError(f"{place} is {type(value).__name__}, not a text")
    text = clean_text(value)
    if not text:
        raise ValueError(f"{place} is empty")
    return text


def parse_texts(named: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a text or a pair of texts as the vocabulary reads them.

    One text of a pair may be empty, as some questions of GLUE's QQP are.

    Args:
      named: {place: value}.
    """
    texts = tuple(
        clean_text(value) if isinstance(value, str) else parse_text(value, place)
        for place, value in named.items()
    )
    if not any(texts):
        parse_text("", next(iter(named)))
    return texts


def clean_text(text: str) -> str:
    """Return a text without lone surrogates, control characters, and blanks around it."""
    return (
        text.encode("utf-16", "surrogatepass")
        .decode("utf-16", "replace")
        .translate(TO_BLANK)
        .strip()
    )


# ---- labels ------------------------------------------------------------------


def parse_class(value: Any) -> str:
    """Return the name of a class, which is a text or a whole number."""
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        hint = "; test splits of a benchmark have no labels" if value is None else ""
        raise ValueError(
            f"{value!r} is not the name of a class, which is a text or a whole number{hint}"
        )
    return str(value).strip()


def parse_score(value: Any) -> float:
    """Return a score, which is a finite number of float32 or a text that spells one."""
    try:
        score = (
            math.nan
            if isinstance(value, bool) or not isinstance(value, (str, int, float))
            else float(value)
        )
    except (ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"{value!r} is not a score, which is a number")
    if abs(score) > MAX_SCORE:
        raise ValueError(f"the score {value!r:.80} is beyond float32; scale all scores down")
    return score


def describe_single_label(examples: list[Example]) -> str:
    """Return a message if all examples have the same label, else ""."""
    labels = {example.label for example in examples}
    return (
        "" if len(labels) > 1 else f"all {len(examples):,} examples have the label {labels.pop()!r}"
    )


def check_label_variety(examples: list[Example]) -> None:
    """Raise a ValueError that names the source if all examples have the same label."""
    if problem := describe_single_label(examples):
        raise ValueError(
            f"{examples[0].location.rpartition(':')[0]}: {problem}; "
            "nothing can be learned from that"
        )


def list_classes(examples: list[Example]) -> tuple[str, ...]:
    """Return the classes of examples, sorted as numbers if all are numbers, else as text."""
    names = {str(example.label) for example in examples}
    numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if numbers else None))


def encode_labels(examples: list[Example], names: tuple[str, ...]) -> np.ndarray:
    """Return the number of each label in `names`, float32 [D]; without names the scores, or the
    vectors, float32 [D, W].

    Raises:
      ValueError: a label is not in `names`; the message names the line.
    """
    if not names:
        return np.array([example.label for example in examples], np.float32)
    numbers: dict[Any, int] = {name: number for number, name in enumerate(names)}
    for example in examples:
        if example.label not in numbers:
            known = ", ".join(map(repr, names))
            raise ValueError(
                f"{example.location}: the label {example.label!r} is not one of {known}, "
                "the labels that the model learns"
            )
    return np.array([numbers[example.label] for example in examples], np.float32)
