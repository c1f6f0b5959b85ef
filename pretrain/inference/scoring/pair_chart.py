"""A chart of minimal pairs: the accuracy of each group."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from pretrain.host.terminal import escape
from pretrain.inference.scoring.minimal_pairs import ALL, PairCount

ROW_INCHES = 0.28
MAX_GROUPS = 200  # bars of a chart
MAX_NAME = 40  # characters


def draw_pair_chart(counts: Mapping[str, PairCount], title: str, path: pathlib.Path) -> None:
    """Draw the accuracy of each group with its standard error, and chance, as a PNG file.

    Of more than MAX_GROUPS groups those with the most pairs are drawn.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = sorted(counts, key=lambda name: (name == ALL, counts[name].pairs))[-MAX_GROUPS:]
    groups = sorted(groups, key=lambda name: (name != ALL, counts[name].accuracy))
    figure = Figure(figsize=(7, 1.2 + ROW_INCHES * len(groups)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shares = [100 * counts[name].accuracy for name in groups]
    ties = [100 * counts[name].ties / counts[name].pairs for name in groups]
    errors = [100 * counts[name].standard_error for name in groups]
    colors = ["C1" if name == ALL else "C0" for name in groups]
    places = range(len(groups))
    axes.barh(places, shares, xerr=errors, color=colors, ecolor="0.3")
    if any(ties):
        axes.barh(places, ties, left=shares, color="0.8", label="ties")
        axes.legend(fontsize="small")
    axes.axvline(50, color="0.3", linestyle=":")  # chance
    shown = [escape(name) for name in groups]
    axes.set_yticks(places, [n if len(n) <= MAX_NAME else f"{n[:MAX_NAME]}…" for n in shown])
    for label in axes.get_yticklabels():
        label.set_parse_math(False)  # $ would begin a formula
    axes.set_xlim(0, 100)
    axes.set_xlabel("pairs whose good text is more probable, %; dotted: chance", parse_math=False)
    figure.suptitle(title, parse_math=False)
    figure.savefig(path, format="png")
