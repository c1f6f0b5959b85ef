"""JSON lines with a step each, such as metrics.jsonl: what a crash or a full disk has left of them.

Only reports use these lines, so damage in them must not stop a run. A last line without an end,
which a killed writer leaves, is not damage.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from etils import epath

from data.corpus.json_lines import replace_nonfinite


def read_step_lines(path: epath.PathLike, *required: str) -> tuple[list[dict[str, Any]], int]:
    """Return (rows, number of damaged lines) of a file; ([], 0) if there is no file.

    A line is damaged if it is not a JSON object with an integer `step`. A number that is not finite
    is read as null.

    Args:
      required: keys that each row must have in addition to `step`.
    """
    path = epath.Path(path)
    if not path.exists():
        return [], 0
    *lines, _ = path.read_bytes().split(b"\n")
    rows = [row for line in lines if (row := _parse_line(line, required)) is not None]
    return rows, len(lines) - len(rows)


def report_step_lines(
    path: epath.PathLike, *required: str, is_sound: Callable[[dict[str, Any]], bool] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of `read_step_lines`; a line on standard error counts the damaged ones.

    Args:
      is_sound: returns whether a row has the form that its readers rely on; others are damaged.
    """
    found, num_damaged = read_step_lines(path, *required)
    rows = [*filter(is_sound, found)] if is_sound else found
    num_damaged += len(found) - len(rows)
    if num_damaged:
        print(
            f"{path}: {num_damaged:,} damaged lines are left out, {len(rows):,} are read",
            file=sys.stderr,
        )
    return rows


def mend_step_lines(path: epath.PathLike, *required: str) -> list[dict[str, Any]]:
    """Return the rows of `read_step_lines` for a writer, which will rewrite the file.

    A damaged file is first copied to damaged/, and reported on standard error.
    """
    path = epath.Path(path)
    rows, num_damaged = read_step_lines(path, *required)
    if num_damaged:
        folder = path.parent / "damaged"
        folder.mkdir(exist_ok=True)
        names = (folder / (path.name if not n else f"{path.name}.{n}") for n in range(1000))
        copy = next(name for name in names if not name.exists())
        path.copy(copy)
        print(
            f"{path}: {num_damaged:,} damaged lines are dropped, {len(rows):,} stay; the file as "
            f"it was is {copy}",
            file=sys.stderr,
        )
    return rows


def _parse_line(line: bytes, required: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        row = replace_nonfinite(json.loads(line))
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and type(row.get("step")) is int
    return row if is_row and all(key in row for key in required) else None
