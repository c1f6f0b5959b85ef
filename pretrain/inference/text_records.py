"""Texts for the inspection of a model; all are checked before anything is computed."""

import os
from collections.abc import Iterable
from typing import Any

from pretrain.inference.record_files import check_characters, get_text, read_records

Record = dict[str, Any]


def read_texts(path: str | os.PathLike[str], *optional: str) -> list[tuple[str, Record]]:
    """Return [(place, record)] of a file of texts or .jsonl records, checked by `check_records`.

    Raises ValueError also for a file without texts.
    """
    records = check_records(read_records(path), *optional)
    if not records:
        raise ValueError(f"{path}: no text in it, only blank lines; give a text a line")
    return records


def check_records(
    records: Iterable[tuple[str, Record]], *optional: str
) -> list[tuple[str, Record]]:
    """Return [(place, record)] unchanged, if the field `text` and all optional fields are valid.

    Args:
      optional: names of further fields, which a record may lack.

    Raises:
      ValueError: a field is not a string, or has an unpaired surrogate; begins with the place.
    """
    records = list(records)
    for place, record in records:
        get_text(record, place)
        for name in ("text", *(name for name in optional if record.get(name) is not None)):
            if not isinstance(record[name], str):
                raise ValueError(f"{place}: the field {name} is a string, or left out")
            check_characters(record[name], f"{place}: the field {name}")
    return records
