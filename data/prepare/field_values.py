"""How many documents have which value of a field, such as a language, by source.

A count is {field: {value as JSON: [documents, bytes of text]}}; a record without the field has the
value `null`. A field with more than `MAX_VALUES` values, as an address has, is counted as None,
so memory is bounded and the order in which jobs are added does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_VALUES = 1_000  # of a field
MAX_CHARACTERS = 80  # of a value; a longer one is cut

ValueCounts = dict[str, dict[str, list[int]] | None]


def add_value(counts: ValueCounts, field: str, value: str | None, size: int) -> None:
    """Count a document.

    Args:
      counts: changed in place.
      value: of its field; None if its record lacks the field.
      size: bytes of its text.
    """
    if value is not None and len(value) > MAX_CHARACTERS:
        value = value[:MAX_CHARACTERS] + "…"
    _add_counts(counts, field, {json.dumps(value, ensure_ascii=False): [1, size]})


def merge_values(counts: ValueCounts, others: Mapping[str, Any]) -> None:
    """Add the counts of a later job, in place."""
    for field, other in others.items():
        if other is None:
            counts[field] = None
        else:
            _add_counts(counts, field, other)


def _add_counts(counts: ValueCounts, field: str, other: Mapping[str, Sequence[int]]) -> None:
    """Add the counts of one field, in place."""
    values = counts.setdefault(field, {})
    if values is None:
        return
    for value, (documents, size) in other.items():
        known = values.setdefault(value, [0, 0])
        known[0] += documents
        known[1] += size
    if len(values) > MAX_VALUES:
        counts[field] = None


def rank_values(counts: ValueCounts) -> dict[str, list[dict[str, Any]] | None]:
    """Return {field: its values}, the most bytes first; None for a field with too many.

    A value has its documents, its bytes and its share of the bytes; one that is None is of records
    without the field.
    """
    return {field: None if values is None else _rank(values) for field, values in counts.items()}


def _rank(values: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """Return the values of one field."""
    total = max(sum(size for _, size in values.values()), 1)
    ranked = sorted(values.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        {"value": json.loads(value), "documents": documents, "bytes": size, "share": size / total}
        for value, (documents, size) in ranked
    ]
