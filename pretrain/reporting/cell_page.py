"""A page of text coloured by cells, as static HTML: no script, and nothing is fetched."""

import html
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from pretrain.reporting.html import escape_name

SHADES = 8  # of each sign
# Blue is negative, red is positive; opacity is the size.
BLUE, RED = "33, 102, 200", "214, 60, 45"
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1rem; max-width: 60rem; font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.15rem; }
h2 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
p { margin: .25rem 0; font-size: .85rem; }
pre { font: 14px/1.6 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  border: 1px solid #8886; border-radius: .3rem; padding: .6rem; margin: .4rem 0; }
.legend { margin: .6rem 0; font: 14px/1.6 ui-monospace, monospace; }
.legend span { display: inline-block; padding: 0 .5em; }
u { text-decoration-thickness: 2px; text-underline-offset: 3px; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class ColouredText(NamedTuple):
    """A text with an activation of each part.

    Attributes:
      parts: (text, activation in [-1, 1], whether it is underlined).
    """

    title: str
    notes: tuple[str, ...]
    parts: list[tuple[str, float, bool]]


def render_cell_page(title: str, notes: Iterable[str], texts: Iterable[ColouredText]) -> str:
    """Return the page; every text is escaped."""
    shades = "".join(
        f".{sign}{n} {{ background: rgba({colour}, {0.8 * n / SHADES:.2f}); }}\n"
        for sign, colour in (("n", BLUE), ("p", RED))
        for n in range(1, SHADES + 1)
    )
    legend = "".join(f'<span class="{name_shade(n / 4)}">{n / 4:+.2f}</span>' for n in range(-4, 5))
    sections = "\n".join(map(render_text, texts))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape_name(title)}</title>\n<style>{STYLE}{shades}</style>\n</head>\n<body>\n"
        f"<h1>{escape_name(title)}</h1>\n{render_notes(notes)}"
        f'<p class="legend">{legend}</p>\n{sections}\n</body>\n</html>\n'
    )


def render_notes(notes: Iterable[str]) -> str:
    """Return a paragraph for each line."""
    return "".join(f"<p>{escape_name(note)}</p>\n" for note in notes)


def render_text(text: ColouredText) -> str:
    """Return the section of a text, which may have notes alone."""
    shown = f"<pre>{render_parts(text.parts)}</pre>\n" if text.parts else ""
    return (
        f"<section>\n<h2>{escape_name(text.title)}</h2>\n{render_notes(text.notes)}{shown}"
        "</section>"
    )


def render_parts(parts: Iterable[tuple[str, float, bool]]) -> str:
    """Return the parts of a text; neighbours of one shade share an element."""
    shaded = ((text, name_shade(value), marked) for text, value, marked in parts)
    pieces = []
    for (shade, marked), run in itertools.groupby(shaded, key=lambda part: part[1:]):
        words = html.escape("".join(text for text, *_ in run))
        words = f"<u>{words}</u>" if marked else words
        pieces.append(f'<span class="{shade}">{words}</span>' if shade else words)
    return "".join(pieces)


def name_shade(value: float) -> str:
    """Return the class of an activation; "" near 0."""
    size = min(SHADES, round(abs(value) * SHADES))
    return f"{'n' if value < 0 else 'p'}{size}" if size else ""
