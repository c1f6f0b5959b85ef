"""The texts of a JSON record: a field, the two sides of a pair, or the fields of an article.

A text becomes UTF-8, and what had to be repaired for that is reported. A record without the fields
that are asked for raises a ValueError, to which the caller adds the file and the line.
"""

from collections.abc import Sequence
from typing import Any

from data.corpus.sentences import WHITESPACE

NOT_UTF8 = "documents with bytes that are not UTF-8 (replaced by U+FFFD)"
SURROGATES = "documents with an unpaired surrogate (replaced by U+FFFD)"
NUL_BYTES = "documents with NUL bytes (replaced by blanks)"
FIELD_SEPARATOR = b"\0"  # between the fields of an article; no text may hold it
LIST_SEPARATOR = ", "  # between the texts of a field that is a list, such as authors


def extract_texts(record: Any, names: Sequence[str]) -> tuple[list[bytes], str | None]:
    """Return the texts of the fields of a record, and why one was repaired.

    Raises ValueError if the record lacks a field, or a field is not a text.
    """
    texts, repair = [], None
    for name in names:
        if not isinstance(record, dict) or name not in record:
            raise ValueError(
                f"no field {name!r} in the record, which is {_describe_record(record)}; "
                "--field names the text"
            )
        if not isinstance(record[name], str):
            raise ValueError(f"field {name!r} is {type(record[name]).__name__}, not a text")
        text, reason = encode_text(record[name])
        texts.append(text)
        repair = reason or repair
    return texts, repair


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
    if not isinstance(record, dict) or record.keys().isdisjoint(names):
        raise ValueError(
            f"none of the fields {', '.join(names)} in the record, which is "
            f"{_describe_record(record)}; --field names the fields of an article"
        )
    fields, repair = [], None
    for name in names:
        value = record.get(name)
        parts = value if isinstance(value, list) else [] if value is None else [value]
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
