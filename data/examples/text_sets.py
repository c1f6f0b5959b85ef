"""Texts that are to be embedded: read and check them from JSON lines or a table with named columns.

a record has                    it is
query, positive                 a text and one that belongs to it; `anchor` is another name of query
..., negative, negative_1, ...  with texts that do not belong to it; in JSON lines also one column
                                `negatives`, a list
sentence1, sentence2, score     two texts and the score of their similarity; `label` is another name
                                of score
text                            a single text, which belongs to itself

As a store, they are labelled examples with one text or more; the label is the score, or 0.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from data.examples.bad_examples import BadExamples, guard_example, raise_if_empty
from data.examples.labelled_examples import Example, parse_score, parse_text, read_records

QUERIES, SCORES = ("query", "anchor"), ("score", "label")
PAIRS = (("sentence1", "sentence2"), ("text", "text2"))
NEGATIVE = re.compile(r"negative(?:_?(\d+))?")
LIST = "negatives"  # a column of several texts
FORMS = "query,positive[,negative...], sentence1,sentence2,score, or text"


def has_scores(columns: Sequence[str]) -> bool:
    """Return whether the last of the columns is a score."""
    return columns[-1] in SCORES


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
    if "text" in record:
        return ("text",)
    raise ValueError(
        f"{place}: has the columns {', '.join(map(repr, record))[:200]}; expected {FORMS}. To name "
        "others, use --columns TEXT[,TEXT...][,score]"
    )


def parse_set(record: Mapping[str, Any], columns: Sequence[str], place: str) -> Example:
    """Return the texts of a record, and its score or 0.

    Raises:
      ValueError: a column is missing, or holds no text or no score; the message begins with
        `place`.
    """
    for name in columns:
        if name not in record:
            known = ", ".join(map(repr, record))[:200]
            raise ValueError(f"{place}: no column {name!r}; there are {known}")
    is_scored, texts = has_scores(columns), []
    for name in columns[:-1] if is_scored else columns:
        values = record[name] if name == LIST else [record[name]]
        if not isinstance(values, list):
            raise ValueError(
                f"{place}: column {name!r} is {type(values).__name__}, not a list of texts"
            )
        texts += [parse_text(value, f"{place}: column {name!r}") for value in values]
    try:
        label = parse_score(record[columns[-1]]) if is_scored else 0.0
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
      texts: the number of texts of each example; None: the first one's.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a record of no known form, an empty text, another number of texts, a wrong score,
        or a source without examples; the message names file and line.
    """
    examples, columns = [], tuple(columns)
    for place, record in read_records(source, bad, file_format):
        with guard_example(bad):
            columns = columns or find_set_columns(record, place)
            example = parse_set(record, columns, place)
            texts = texts or len(example.texts)
            if len(example.texts) != texts:
                raise ValueError(
                    f"{place}: {len(example.texts)} texts; {texts} are expected, for each example"
                )
            examples.append(example)
    raise_if_empty(source, "examples", examples, bad)
    return examples, columns
