"""Texts and words of a record that a user wrote, under the names that a task gives them."""

from collections.abc import Mapping, Sequence
from typing import Any

from data.examples.tagged_sentences import parse_words


def read_texts(record: Mapping[str, Any], place: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the text or the pair of texts of a record.

    Args:
      columns: names of the texts in the training examples; `text` and `text2` work too.

    Raises:
      ValueError: the record does not have the texts; the message names the location.
    """
    if (
        record.keys() == {"text"}
        and len(columns) == 2
        and isinstance(record["text"], str)
        and record["text"].count("\t") == 1
    ):
        return tuple(record["text"].split("\t"))  # a line of text
    for names in (columns, ("text", "text2")[: len(columns)]):
        if all(isinstance(record.get(name), str) for name in names):
            return tuple(record[name] for name in names)
    raise ValueError(
        f"{place}: expected {' and '.join(columns)}, each a text; "
        f"this has {', '.join(map(repr, record))}"
    )


def read_words(record: Mapping[str, Any], place: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a record, or its `text` split at white space.

    Args:
      names: keys of the list of words; the first that the record has is read.

    Raises:
      ValueError: the record has no words; the message names the location.
    """
    for name in names:
        if name in record:
            return parse_words(record[name], f"{place}: {name!r}")
    text = record.get("text")
    if not isinstance(text, str):
        raise ValueError(
            f"{place}: expected {' or '.join(dict.fromkeys(names))}, a list of words, or text; "
            f"this has {', '.join(map(repr, record))}"
        )
    return parse_words(text.split(), place)
