"""A picture of a token store: how long its documents are, and the share of each source."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from pretrain.host.terminal import escape
from pretrain.reporting.fonts import choose_fonts, describe_missing, using_fonts

MAX_BARS = 30
MAX_FIELDS = 3
MAX_NAME = 40  # characters of a name, of which the end says most
BINS = 40


def draw_store(
    report: Mapping[str, Any], lengths_D: np.ndarray, path: str | os.PathLike[str] | Any
) -> str:
    """Draw the lengths of documents and the shares of sources and values, side by side, as a PNG.

    Args:
      report: of `data.inspection.store_report.describe_store`.
      lengths_D: tokens of each document.
      path: where to write it.

    Returns:
      A warning of letters that no installed font has; "" for none.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _list_panels(report)
    families, missing = choose_fonts([name for _, bars in panels for name, _ in bars])
    with using_fonts(families):
        height = max(3.5, 0.5 + 0.25 * max(len(bars) for _, bars in panels))
        width = 4.5 * (1 + len(panels))
        figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        left, *others = figure.subplots(1, 1 + len(panels))
        edges = np.geomspace(1, max(int(lengths_D.max()), 2), BINS)
        left.hist(lengths_D, bins=list(edges))
        left.set_xscale("log")
        left.set_xlabel("tokens of a document")
        left.set_ylabel("documents")
        for axes, (label, bars) in zip(others, panels):
            places = np.arange(len(bars))
            axes.barh(places, [100 * share for _, share in bars])
            names = [name for name, _ in bars]
            axes.set_yticks(places, names, fontsize=8, parse_math=False)  # $ would begin a formula
            axes.invert_yaxis()
            axes.set_xlabel(label, parse_math=False)
        figure.savefig(path, format="png")
    return describe_missing(missing)


def _list_panels(report: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
    """Return (label, bars) of the shares of sources, and of the values of the first fields.

    A bar is a name and a share, the largest first.
    """
    sources = sorted(report["sources"], key=lambda row: -row["tokens"])
    panels = [("% of the tokens", [(row["name"], row["share"]) for row in sources])]
    for field, rows in report["values"].items():
        if rows:
            bars = [
                ("(none)" if row["value"] is None else row["value"], row["share"]) for row in rows
            ]
            panels.append((f"% of the bytes, by {field[:MAX_NAME]}", bars))
    return [
        (escape(label), [(_shorten(escape(name)), share) for name, share in bars[:MAX_BARS]])
        for label, bars in panels[: 1 + MAX_FIELDS]
    ]


def _shorten(name: str) -> str:
    """Return the end of a long name, or a short one."""
    return f"…{name[1 - MAX_NAME :]}" if len(name) > MAX_NAME else name
