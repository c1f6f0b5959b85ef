"""The texts of a JSON record: a field, the two sides of a pair, or the fields of an article.

A text becomes UTF-8, and what had to be repaired for that is reported. A record without the fields
that are asked for raises a ValueError, to which the caller adds the file and the line.
"""

import json
from collections.abc import Sequence
from typing import Any

from data.corpus.sentences import WHITESPACE

NOT_UTF8 = "documents with bytes that are not UTF-8 (replaced by U+FFFD)"
SURROGATES = "documents with an unpaired surrogate (replaced by U+FFFD)"
NUL_BYTES = "documents with NUL bytes (replaced by blanks)"
FIELD_SEPARATOR = b"\0"  # between the fields of an article; no text may hold it
ABSENT = object()  # of a field that a record does not have
LIST_SEPARATOR = ", "  # between the texts of a field that is a list, such as authors


def extract_texts(record: Any, names: Sequence[str]) -> tuple[list[bytes], str | None]:
    """Return the texts of the fields of a record, and why one was repaired.

    Raises ValueError if the record lacks a field, or a field is not a text.
    """
    texts, repair = [], None
    for name in names:
        value = find_field(record, name)
        if value is ABSENT:
            raise ValueError(
                f"no field {name!r} in the record, which is {_describe_record(record)}; "
                "--field names the text"
            )
        if not isinstance(value, str):
            raise ValueError(f"field {name!r} is {type(value).__name__}, not a text")
        text, reason = encode_text(value)
        texts.append(text)
        repair = reason or repair
    return texts, repair


def find_field(record: Any, name: str) -> Any:
    """Return the field of a record by its name, or by a path such as a.b; ABSENT if it has none."""
    if isinstance(record, dict) and name in record:
        return record[name]
    for part in name.split("."):
        if not isinstance(record, dict) or part not in record:
            return ABSENT
        record = record[part]
    return record


def read_values(record: Any, names: Sequence[str]) -> tuple[str | None, ...]:
    """Return fields of a record as texts, as JSON writes what is no text; None for absent ones."""
    values = [find_field(record, name) for name in names]
    return tuple(
        value
        if isinstance(value, str)
        else None
        if value is ABSENT
        else json.dumps(value, ensure_ascii=False, default=str)
        for value in values
    )


def join_text(record: Any, names: Sequence[str]) -> tuple[bytes, str | None]:
    """Return the text of a record's one field in UTF-8, and why it was repaired."""
    (raw,), repair = extract_texts(record, names)
    return raw, repair


def join_sides(record: Any, names: Sequence[str]) -> tuple[bytes, str | None]:
    """Return the document of a source and its target, and why one was repaired."""
    sides, repair = extract_texts(record, names)
    return join_pair(*sides), repair


def encode_text(text: str) -> tuple[bytes, str | None]:
    """Return a text in UTF-8, and why it was repaired."""
    try:
        return text.encode(), None
    except UnicodeEncodeError:
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole.encode(), SURROGATES


def join_pair(source: bytes, target: bytes) -> bytes:
    """Join a source and its target to a document of two lines.

    Raises ValueError if one of them has no text.
    """
    sides = [side.strip(WHITESPACE).replace(b"\n", b" ") for side in (source, target)]
    for name, side in zip(("source", "target"), sides):
        if not side:
            raise ValueError(f"the {name} is empty")
    return b"\n".join(sides)


def join_article(record: Any, names: Sequence[str]) -> tuple[bytes, str | None]:
    """Join the fields of an article to a document, and return it and why it was repaired.

    A field that is absent, null or without text is empty in the document. The document of an
    article without any text is empty.

    Raises ValueError if the record has none of the fields, or one that is no text or list of texts.
    """
    values = [find_field(record, name) for name in names]
    if all(value is ABSENT for value in values):
        raise ValueError(
            f"none of the fields {', '.join(names)} in the record, which is "
            f"{_describe_record(record)}; --field names the fields of an article"
        )
    fields, repair = [], None
    for name, value in zip(names, values, strict=True):
        parts = value if isinstance(value, list) else [value]
        if value is ABSENT or value is None:
            parts = []
        if not all(isinstance(part, str) for part in parts):
            raise ValueError(
                f"field {name!r} is {value!r:.80}; the field of an article is a text, a list of "
                "texts, or left out"
            )
        raw, reason = encode_text(LIST_SEPARATOR.join(parts))
        if FIELD_SEPARATOR in raw:
            raw, reason = raw.replace(FIELD_SEPARATOR, b" "), NUL_BYTES
        fields.append(raw.strip(WHITESPACE))
        repair = reason or repair
    return (FIELD_SEPARATOR.join(fields) if any(fields) else b""), repair


def _describe_record(record: Any) -> str:
    """Return what a record is, for an error."""
    if isinstance(record, dict):
        return f"an object with {', '.join(map(repr, record))}"[:200]
    return type(record).__name__
