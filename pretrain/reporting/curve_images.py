"""The curves of a run as PNG files, by matplotlib."""

# matplotlib is optional.
# pyright: reportMissingImports=false

from pretrain.extras import how_to_install
from pretrain.reporting.curves import drawn, series


def draw(runs, folder):
    """A PNG of each curve of the runs that has a file. Raises ValueError without matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ValueError(f"pictures need matplotlib: {how_to_install('report')}") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = []
    told = {
        title: {curve.file: curve for curve in drawn(rows) if curve.file}
        for title, rows in runs.items()
    }
    for name, label in {
        name: curve.label for curves_of in told.values() for name, curve in curves_of.items()
    }.items():
        figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120, layout="constrained")
        for number, (title, rows) in enumerate(runs.items()):
            color, curve = f"C{number}", told[title].get(name)
            if curve and curve.train:
                steps, values = series(rows, curve.train)
                axes.plot(
                    steps, smooth(values), color=color, label=f"{title}, training", linewidth=1.5
                )
                axes.plot(steps, values, color=color, alpha=0.2, linewidth=0.6)
            if curve and curve.heldout:
                steps, values = series(rows, curve.heldout)
                axes.plot(
                    steps,
                    values,
                    "o--",
                    color=color,
                    label=f"{title}, held out",
                    markersize=4,
                    markerfacecolor="white",
                )
        axes.set(xlabel="step", ylabel=label)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(folder / name)
        pyplot.close(figure)
        paths.append(folder / name)
    return paths


def smooth(values, share=0.02):
    """An exponential mean over about `share` of the curve, started at the first value."""
    keep = 1 - 1 / max(1.0, share * len(values))
    result, mean = [], None
    for value in values:
        mean = value if mean is None else keep * mean + (1 - keep) * value
        result.append(mean)
    return result
