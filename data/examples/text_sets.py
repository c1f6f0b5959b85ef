"""Texts that are to be embedded: read and check them from JSON lines or a table with named columns.

a record has                    it is
query, positive                 a text and one that belongs to it; `anchor` is another name of query
..., negative, negative_1, ...  with texts that do not belong to it; in JSON lines also one column
                                `negatives`, a list
sentence1, sentence2, score     two texts and the score of their similarity; `label` is another name
                                of score
text                            a single text, which belongs to itself
text, vector                    a text and its vector by a teacher, a list of numbers in JSON lines;
                                `embedding` is another name of vector

As a store, they are labelled examples with one text or more; the label is the score, the vector,
or 0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from data.examples.bad_examples import BadExamples, guard_example, raise_if_empty
from data.examples.labelled_examples import Example, parse_score, parse_text, read_records
from data.store.manifest import MOST_COMPONENTS

QUERIES, SCORES = ("query", "anchor"), ("score", "label")
VECTORS = ("vector", "embedding")
PAIRS = (("sentence1", "sentence2"), ("text", "text2"))
NEGATIVE = re.compile(r"negative(?:_?(\d+))?")
LIST = "negatives"  # a column of several texts
FORMS = "query,positive[,negative...], sentence1,sentence2,score, text,vector, or text"


def has_scores(columns: Sequence[str]) -> bool:
    """Return whether the last of the columns is a score."""
    return columns[-1] in SCORES


def has_vectors(columns: Sequence[str]) -> bool:
    """Return whether the last of the columns is a vector."""
    return columns[-1] in VECTORS


def parse_vector(value: Any) -> tuple[float, ...]:
    """Return a vector, which is a list of finite numbers of float32."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_COMPONENTS:
        raise ValueError(
            f"{value!r:.60} is not a vector, which is a list of 1 to {MOST_COMPONENTS:,} numbers"
        )
    return tuple(parse_score(number) for number in value)


def find_set_columns(record: Mapping[str, Any], place: str) -> tuple[str, ...]:
    """Return the columns of a record that are read.

    Raises:
      ValueError: it is in no known form; the message begins with `place`.
    """
    query = next((name for name in QUERIES if name in record), None)
    if query and "positive" in record:
        numbered = {name: found[1] for name in record if (found := NEGATIVE.fullmatch(name))}
        negatives = sorted(numbered, key=lambda name: int(numbered[name] or 0))
        return (query, "positive", *negatives, *((LIST,) if LIST in record else ()))
    score = next((name for name in SCORES if name in record), None)
    for pair in PAIRS:
        if score and set(pair) <= record.keys():
            return (*pair, score)
    vector = next((name for name in VECTORS if name in record), None)
    if "text" in record:
        return ("text", vector) if vector else ("text",)
    raise ValueError(
        f"{place}: has the columns {', '.join(map(repr, record))[:200]}; expected {FORMS}. To name "
        "others, use --columns TEXT[,TEXT...][,score]"
    )


def parse_set(record: Mapping[str, Any], columns: Sequence[str], place: str) -> Example:
    """Return the texts of a record, and its score, its vector or 0.

    Raises:
      ValueError: a column is missing, or holds no text, score or vector; the message begins with
        `place`.
    """
    for name in columns:
        if name not in record:
            known = ", ".join(map(repr, record))[:200]
            raise ValueError(f"{place}: no column {name!r}; there are {known}")
    parse_label, texts = None, []
    if has_scores(columns) or has_vectors(columns):
        parse_label = parse_vector if has_vectors(columns) else parse_score
    for name in columns[:-1] if parse_label else columns:
        values = record[name] if name == LIST else [record[name]]
        if not isinstance(values, list):
            raise ValueError(
                f"{place}: column {name!r} is {type(values).__name__}, not a list of texts"
            )
        texts += [parse_text(value, f"{place}: column {name!r}") for value in values]
    try:
        label = parse_label(record[columns[-1]]) if parse_label else 0.0
    except ValueError as error:
        raise ValueError(f"{place}: column {columns[-1]!r}: {error}") from None
    return Example(tuple(texts), label, place)


def read_text_sets(
    source: str,
    columns: Sequence[str] = (),
    texts: int | None = None,
    bad: BadExamples | None = None,
    file_format: str | None = None,
) -> tuple[list[Example], tuple[str, ...]]:
    """Return the examples of a source, and the columns that were read.

    Args:
      columns: names of the columns; (): those of the first record.
      texts: the number of texts of each example; None: the first one's. Vectors have as many
        components as the first one.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a record of no known form, an empty text, another number of texts, a wrong score,
        or a source without examples; the message names file and line.
    """
    examples: list[Example] = []
    columns = tuple(columns)
    for place, record in read_records(source, bad, file_format):
        with guard_example(bad):
            columns = columns or find_set_columns(record, place)
            example = parse_set(record, columns, place)
            texts = texts or len(example.texts)
            if len(example.texts) != texts:
                raise ValueError(
                    f"{place}: {len(example.texts)} texts; {texts} are expected, for each example"
                )
            if has_vectors(columns):
                check_width(example, examples[:1])
            examples.append(example)
    raise_if_empty(source, "examples", examples, bad)
    return examples, columns


def check_width(example: Example, first: Sequence[Example]) -> None:
    """Raise ValueError unless an example's vector has as many components as the first one's."""
    if first and len(example.label) != len(first[0].label):
        raise ValueError(
            f"{example.location}: a vector of {len(example.label)} components; the first has "
            f"{len(first[0].label)}"
        )
