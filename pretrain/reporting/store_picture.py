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

MAX_SOURCES = 30  # with a bar of their own
MAX_NAME = 40  # characters of a source's name, of which the end says most
BINS = 40


def draw_store(
    report: Mapping[str, Any], lengths_D: np.ndarray, path: str | os.PathLike[str] | Any
) -> str:
    """Draw the lengths of documents and the shares of sources, side by side, as a PNG.

    Args:
      report: of `data.inspection.store_report.describe_store`.
      lengths_D: tokens of each document.
      path: where to write it.

    Returns:
      A warning of letters that no installed font has; "" for none.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = sorted(report["sources"], key=lambda row: -row["tokens"])[:MAX_SOURCES]
    names = [escape(row["name"]) for row in rows]
    names = [f"…{name[1 - MAX_NAME :]}" if len(name) > MAX_NAME else name for name in names]
    families, missing = choose_fonts(names)
    with using_fonts(families):
        figure = Figure(
            figsize=(9, max(3.5, 0.5 + 0.25 * len(rows))), dpi=120, layout="constrained"
        )
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        edges = np.geomspace(1, max(int(lengths_D.max()), 2), BINS)
        left.hist(lengths_D, bins=list(edges))
        left.set_xscale("log")
        left.set_xlabel("tokens of a document")
        left.set_ylabel("documents")
        places, shares = np.arange(len(rows)), [100 * row["share"] for row in rows]
        right.barh(places, shares)
        right.set_yticks(places, names, fontsize=8, parse_math=False)  # $ would begin a formula
        right.invert_yaxis()
        right.set_xlabel("% of the tokens")
        figure.savefig(path, format="png")
    return describe_missing(missing)
