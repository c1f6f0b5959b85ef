"""Draw the curves of a run as PNG files with matplotlib."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pretrain.host.extras import how_to_install
from pretrain.host.terminal import escape
from pretrain.reporting.curves import Curve, extract_series, find_phase_starts, list_curves
from pretrain.reporting.fonts import choose_fonts, describe_missing, using_fonts

MEAN_STEPS = 51  # an odd number
MAX_POINTS = 2000  # of a curve; more would cover its mean
MAX_TITLE = 40  # characters of a run's name in the legend, of which the end says most


def draw_curves(
    runs: Mapping[str, Sequence[dict[str, Any]]],
    folder: pathlib.Path,
    report: Callable[[str], Any] = print,
    units: Mapping[str, str] = MappingProxyType({}),
) -> list[pathlib.Path]:
    """Draw each curve that has an image file, for all runs together, and return the paths.

    Args:
      runs: {title: rows of the metrics}.
      units: {title: what a run counts}; tokens, unless given.

    Raises:
      ValueError: if matplotlib is not installed.
    """
    if not importlib.util.find_spec("matplotlib"):
        raise ValueError(f"images need matplotlib: {how_to_install('report')}")
    curves = {
        title: {
            curve.file: curve
            for curve in list_curves(rows, units.get(title, "tokens"))
            if curve.file
        }
        for title, rows in runs.items()
    }
    labels = {
        name: escape(curve.label)
        for run_curves in curves.values()
        for name, curve in run_curves.items()
    }
    families, missing = choose_fonts([*map(escape, runs), *labels.values()])
    with using_fonts(families):
        paths = _draw_files(runs, curves, labels, folder)
    if missing:
        report(describe_missing(missing))
    return paths


def _draw_files(
    runs: Mapping[str, Sequence[dict[str, Any]]],
    curves: Mapping[str, Mapping[str, Curve]],
    labels: Mapping[str, str],
    folder: pathlib.Path,
) -> list[pathlib.Path]:
    """Draw the files of `draw_curves` and return their paths.

    Args:
      curves: {title: {name of the file: curve}}.
      labels: {name of the file: title of the y axis}.
    """
    # Not pyplot, whose choice of a backend would hide a notebook's own pictures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    paths = []
    for name, label in labels.items():
        figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for number, (title, rows) in enumerate(runs.items()):
            if curve := curves[title].get(name):
                shown = escape(title)
                shown = f"…{shown[1 - MAX_TITLE :]}" if len(shown) > MAX_TITLE else shown
                shown = shown.replace("$", "\\$")  # $ would begin a formula
                shown = shown if shown[:1] != "_" else f" {shown}"  # _ would hide it in the legend
                _draw_run(axes, curve, rows, shown, f"C{number}")
                _mark_phases(axes, find_phase_starts(rows), f"C{number}")
        axes.set_xlabel("step")
        axes.set_ylabel(label, parse_math=False)  # $ would begin a formula
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=(1, 2, 5, 10)))
        for axis, largest in ((axes.xaxis, axes.get_xlim()[1]), (axes.yaxis, axes.get_ylim()[1])):
            if 10_000 <= largest < 1e9:  # the perplexity of a diverged run has 300 digits
                axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        figure.savefig(folder / name)
        paths.append(folder / name)
    return paths


def _draw_run(
    axes: Any, curve: Curve, rows: Sequence[dict[str, Any]], title: str, color: str
) -> None:
    """Draw a curve of one run: its steps as points with their mean, and its held-out scores."""
    if curve.train:
        steps, values = extract_series(rows, curve.train)
        every = -(-len(steps) // MAX_POINTS)
        points = {"color": color, "alpha": 0.4, "markersize": 2, "markeredgewidth": 0}
        axes.plot(steps[::every], values[::every], "o", zorder=1, **points)
        reach, means = average_neighbours(values)
        axes.plot(
            steps[reach : len(steps) - reach],
            means,
            "o-" if len(steps) == 1 else "-",  # a line through one point is invisible
            color=color,
            label=f"{title}, training" + (f" (mean of {2 * reach + 1} steps)" if reach else ""),
            linewidth=1.5,
            markersize=4,
            zorder=3,
        )
    for key, style, label in (
        (curve.heldout, "o--", "held out"),
        (curve.ema, "s:", "held out, moving average"),
    ):
        if key:
            steps, values = extract_series(rows, key)
            axes.plot(
                steps,
                values,
                style,
                color=color,
                label=f"{title}, {label}",
                markersize=4,
                markerfacecolor="white",
                zorder=4,
            )


def _mark_phases(axes: Any, starts: Mapping[str, int], color: str) -> None:
    """Mark where each phase of a run begins by a line with its name."""
    for name, step in starts.items():
        axes.axvline(step, color=color, alpha=0.4, linewidth=1, linestyle=":")
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(name, (step, 1), xytext=(3, -9), **place, fontsize="x-small", color=color)


def average_neighbours(values: Sequence[float]) -> tuple[int, list[float]]:
    """Return (reach, means): each value averaged with `reach` neighbours on either side.

    `MEAN_STEPS` values are averaged, fewer of a short curve. The first and last `reach` values have
    no mean, so the line has one width and no lag.
    """
    reach = min(MEAN_STEPS // 2, (len(values) - 1) // 4)
    sums, width = list(itertools.accumulate(values, initial=0.0)), 2 * reach + 1
    return reach, [(end - begin) / width for begin, end in zip(sums, sums[width:])]
