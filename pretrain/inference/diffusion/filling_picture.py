"""A picture of the order in which the masks of a text were filled."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from pretrain.host.terminal import escape
from pretrain.reporting.fonts import choose_fonts, describe_missing

COLUMNS = 76  # characters of a line
CHARACTER_INCHES, LINE_INCHES = 0.085, 0.36
POINTS = 9  # of a letter


class Word(NamedTuple):
    """A piece of the text on the picture.

    Attributes:
      text: what is written.
      step: the step that filled it; 0 for the words of the prompt.
      line, column: where it begins.
    """

    text: str
    step: int
    line: int
    column: int


def lay_out_words(filled: str, fills: Sequence[Mapping[str, Any]]) -> list[Word]:
    """Return the pieces of a filled text in lines of COLUMNS characters."""
    parts, last = [], 0
    for fill in fills:
        begin, end = fill["span"]
        parts += [(part, 0) for part in re.findall(r"\s+|\S+", filled[last:begin])]
        parts.append((filled[begin:end], fill["step"]))
        last = end
    parts += [(part, 0) for part in re.findall(r"\s+|\S+", filled[last:])]
    words, line, column = [], 0, 0
    for text, step in parts:
        width = len(text)
        if column and column + width > COLUMNS:
            line, column = line + 1, 0
        if text.strip():
            words.append(Word(text, step, line, column))
        if text.strip() or column:  # a line begins without a blank
            column += width
    return words


def draw_filling(
    filled: str, fills: Sequence[Mapping[str, Any]], title: str, file: BinaryIO
) -> str:
    """Draw a filled text as a PNG file, each mask in the colour of its step, with its number.

    Args:
      filled, fills: as in the result of `pretrain.inference.diffusion.step_filling.StepFiller`.

    Returns:
      a warning about letters that no font has, or "".
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    words = lay_out_words(filled, fills)
    num_lines = 1 + max((word.line for word in words), default=0)
    last = max((word.step for word in words), default=1)
    size = (COLUMNS * CHARACTER_INCHES + 0.4, num_lines * LINE_INCHES + 0.7)
    figure = Figure(figsize=size, dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.2 / size[0], 0.2 / size[1], 1 - 0.4 / size[0], 1 - 0.7 / size[1]))
    axes.set(xlim=(0, COLUMNS), ylim=(num_lines, 0))
    axes.axis("off")
    families, missing = choose_fonts(word.text for word in words)
    style = {"family": ["monospace", *families], "fontsize": POINTS, "parse_math": False}
    for text, step, line, column in words:
        if step:
            share = (step - 1) / max(last - 1, 1)
            shade = colormaps["viridis"](share)
            axes.add_patch(
                Rectangle((column, line + 0.38), len(text), 0.56, facecolor=shade, alpha=0.45)
            )
            axes.text(
                column + len(text) / 2, line + 0.34, str(step), ha="center", va="bottom",
                fontsize=POINTS - 4, color="0.35",
            )  # fmt: skip
        color = "black" if step else "0.45"
        axes.text(column, line + 0.66, escape(text), va="center", color=color, **style)
    note = f"the number above a word is its step, from 1 to {last}; grey: the prompt"
    heading = f"{escape(title)}\n{note}" if title else note
    figure.suptitle(heading, fontsize=POINTS - 1, parse_math=False)
    figure.savefig(file, format="png")
    return describe_missing(missing)
