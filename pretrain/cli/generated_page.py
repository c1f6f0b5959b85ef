"""Pages of which a command writes the part below a marker."""

from __future__ import annotations

import pathlib

from pretrain.settings.overrides import ConfigError


def make_marker(command: str) -> str:
    """Return the line below which a command writes its page."""
    return f"<!-- Below this line: python -m pretrain {command} -->"


def update_page(path: pathlib.Path, marker: str, text: str) -> None:
    """Replace the text below the marker of a page.

    Raises:
      ConfigError: if the page has no marker.
    """
    head, found, _ = path.read_text().partition(marker)
    if not found:
        raise ConfigError(f"{path} has no line {marker}")
    path.write_text(f"{head}{marker}\n\n{text}")
