"""A line of a file of JSON lines: one object."""

import json


def object_of(line: str, place: str) -> dict:
    """The object that a line spells. Raises ValueError, which begins with `place`, where it spells none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        told = (
            f"{error.msg}, at character {error.pos + 1}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise ValueError(f"{place}: not JSON ({told}); each line holds one whole object") from None
    if not isinstance(record, dict):
        raise ValueError(f"{place}: expected a JSON object, not {line[:80]!r}")
    return record
