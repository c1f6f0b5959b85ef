"""Results that stay in a folder, and the commands and settings by which they were measured."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from data.store.atomic import write_atomically


def format_verb(arguments: Sequence[str]) -> str:
    """Return the command line of a verb."""
    return " ".join(["python -m pretrain", *arguments])


def is_done(path: pathlib.Path, arguments: Sequence[str]) -> bool:
    """Return whether the result of a command exists at `path`.

    Raises:
      ValueError: if it is the result of another command.
    """
    if not path.exists():
        return False
    if (previous := json.loads(path.read_text())["command"]) != format_verb(arguments):
        raise ValueError(
            f"{path} was measured by\n  {previous}\nand not by\n  {format_verb(arguments)}\n"
            "Measure it again with --again, or use another folder with --work"
        )
    return True


def write_result(path: pathlib.Path, result: Any) -> None:
    """Write a result as a JSON file."""
    write_atomically(path, json.dumps(result, indent=1) + "\n")


def require_settings(path: pathlib.Path, settings: Mapping[str, Any], has_results: bool) -> None:
    """Write the settings of a folder's results, or compare them with those that are written.

    Args:
      path: the JSON file of the settings.
      settings: those that change a result; None: a part that this command does not measure.
      has_results: whether there are results, which may be older than the file.

    Raises:
      ValueError: if the results were measured with other settings, or it is not known with which.
    """
    settings = {key: value for key, value in settings.items() if value is not None}
    if has_results and not path.exists():
        raise ValueError(
            f"{path.parent} does not say with which {', '.join(settings)} its results were "
            f"measured: use another folder, or write the values to {path}, a JSON object"
        )
    known = json.loads(path.read_text()) if path.exists() else {}
    for key, value in settings.items():
        if known.get(key, value) != value:
            raise ValueError(
                f"{path}: the results were measured with {key}={known[key]}, not with "
                f"{key}={value}: use another folder"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_result(path, known | settings)
