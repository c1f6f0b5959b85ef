"""Fields of records that are read beside the text, and how many documents have which value.

A count is {field: {value as JSON: [documents, bytes of text]}}; a record without the field has the
value `null`. A field with more than `MAX_VALUES` values, as an address has, is counted as None,
so memory is bounded and the order in which jobs are added does not matter.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from data.corpus import sources
from data.corpus.paths import DATASETS
from data.corpus.readers import TABLE_READERS
from data.corpus.sequences import FORMATS as SEQUENCES
from data.corpus.sequences import SEQUENCE_NAME
from data.prepare.request import PrepareRequest

FIRST_RECORDS = 1_000  # records in which a field is looked for before the corpus is read
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


def list_more_fields(request: PrepareRequest) -> tuple[str, ...]:
    """Return the names of the fields; the one that decides what is held out is the last."""
    of_cleaning = request.cleaning.list_fields() if request.cleaning else ()
    return (*of_cleaning, *((request.held_out_by,) if request.held_out_by else ()))


def check_fields(request: PrepareRequest, resolved: Sequence[sources.ResolvedSource]) -> None:
    """Raise ValueError for sources without fields, or a field that no first records have.

    The files of the Hub are not on this machine, so their fields are not checked.
    """
    names = list_more_fields(request)
    missing = set(names)
    for source in resolved if names else ():
        if source.name.startswith(DATASETS):
            return
        if source.name == "builtin" or source.name.startswith("tfds:"):
            raise ValueError(_explain_absence(request, source.name))
        for path, *_ in source.files[:1]:
            chunk = next(sources.split_source(source, max(source.size, 1), pathlib.Path()))
            has_names = chunk.file_format in SEQUENCES and missing <= {SEQUENCE_NAME}
            has_fields = chunk.file_format in TABLE_READERS or chunk.file_format.endswith("jsonl")
            if not has_names and not has_fields:
                raise ValueError(_explain_absence(request, path))
            for i, document in enumerate(sources.read_chunk(chunk)):
                has = document.values or (None,) * len(names)
                missing -= {name for name, value in zip(names, has) if value is not None}
                if not missing or i >= FIRST_RECORDS:
                    break
    if missing:
        name = next(name for name in names if name in missing)
        raise ValueError(
            f"no field {name!r} in the first records of {' '.join(one.name for one in resolved)}; "
            "--keep-where, --drop-where, --count-values and --held-out-by name a field, or a path "
            "such as a.b"
        )


def _explain_absence(request: PrepareRequest, name: str) -> str:
    """Return the error for a source whose documents have no fields, or only their names."""
    cleaning = request.cleaning
    asked = {
        "--keep-where": cleaning and cleaning.keep_where,
        "--drop-where": cleaning and cleaning.drop_where,
        "--count-values": cleaning and cleaning.count_values,
        "--held-out-by": request.held_out_by,
    }
    flag = next(flag for flag, names in asked.items() if names)
    forms = (
        ".jsonl, .csv, .parquet and .arrow files have some, and FASTA and FASTQ files have "
        f"{SEQUENCE_NAME}, the first word of a header"
    )
    return f"{flag} reads fields of records, and {name} has none; {forms}"
