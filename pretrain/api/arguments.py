"""Overrides as the command line has them."""

from collections.abc import Mapping, Sequence
from typing import Any


def list_arguments(overrides: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Return `path=value` arguments: those given, or those of {path: value}."""
    if not isinstance(overrides, Mapping):
        return list(overrides)
    return [f"{path}={_format_value(value)}" for path, value in overrides.items()]


def _format_value(value: Any) -> str:
    """Return a value as the text that `parse_override` reads."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
