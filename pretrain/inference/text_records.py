"""The texts that a model is looked into with, each with its place, and all of them checked before anything is computed."""

from pretrain.inference.record_files import read_records, text_in


def read_texts(path, *optional):
    """[(place, record)] of a file of texts, or of .jsonl records, as `checked` has them. Raises ValueError for a file of no texts too."""
    records = checked(read_records(path), *optional)
    if not records:
        raise ValueError(f"{path}: no text in it, only blank lines; give a text a line")
    return records


def checked(records, *optional):
    """[(place, record)] as they are: each has the field `text`, and those of `optional` or without them.

    Raises ValueError, which begins with the place, for anything in these fields but a string of whole characters.
    """
    records = list(records)
    for place, record in records:
        text_in(record, place)
        for name in ("text", *(name for name in optional if record.get(name) is not None)):
            if not isinstance(record[name], str):
                raise ValueError(f"{place}: the field {name} is a string, or left out")
            if half := next((sign for sign in record[name] if "\ud800" <= sign <= "\udfff"), None):
                raise ValueError(
                    f"{place}: the field {name} has half of a character in it, {half!a}, which no tokenizer reads; leave it out"
                )
    return records
