"""Arguments of the functions, in the forms that the command line has."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

PathText = str | os.PathLike[str]
Overrides = Mapping[str, Any] | Sequence[str]  # {"train.steps": 3} or ["train.steps=3"]
COLLAPSED = re.compile(r"\w+:/[^/]")  # what pathlib makes of gs://


def list_arguments(overrides: Overrides) -> list[str]:
    """Return `path=value` arguments: the given ones, or one for each item of {path: value}."""
    if isinstance(overrides, str):
        return [overrides]
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{path}={_format_value(value)}" for path, value in overrides.items()]


def _format_value(value: Any) -> str:
    """Return a value as the text that `pretrain.settings.overrides.parse_override` reads."""
    if isinstance(value, (list, tuple)) or getattr(value, "ndim", 0):
        return repr(_make_literal(value))
    return str(value)


def _make_literal(value: Any) -> Any:
    """Return a value without NumPy's numbers and arrays, whose representation is no literal."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(map(_make_literal, value)) if isinstance(value, (list, tuple)) else value


def format_path(path: PathText) -> str:
    """Return a path as text.

    Raises:
      ValueError: it is a URL that pathlib has changed.
      TypeError: it is no path.
    """
    text = os.fspath(path)
    if COLLAPSED.match(text):
        raise ValueError(
            f"{text}: pathlib removes a slash of gs://; give the address as a text, or as an "
            "etils.epath.Path"
        )
    return text


def format_optional(path: PathText | None) -> str | None:
    """Return a path as text, or None. Raises as `format_path`."""
    return None if path is None else format_path(path)


def list_paths(paths: PathText | Sequence[PathText]) -> list[str]:
    """Return one path or several as texts. Raises as `format_path`."""
    if isinstance(paths, (str, os.PathLike)):
        return [format_path(paths)]
    return [format_path(path) for path in paths]


def list_optional(paths: PathText | Sequence[PathText] | None) -> list[str] | None:
    """Return one path or several as texts, or None. Raises as `format_path`."""
    return None if paths is None else list_paths(paths)


def list_texts(values: str | Sequence[Any] | None) -> list[str] | None:
    """Return one text or several as a list, or None."""
    if values is None:
        return None
    return [values] if isinstance(values, str) else [str(value) for value in values]
