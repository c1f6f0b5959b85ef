"""The curves of one run, or of several side by side, as PNG."""

import pathlib

from pretrain import metrics

# (file, title of the y axis, the key of a row, its held-out counterpart)
CURVES = (
    ("loss.png", "loss (nats)", "loss", "heldout_loss"),
    ("accuracy.png", "share of targets guessed", "accuracy", "heldout_accuracy"),
    ("gradient_norm.png", "gradient norm", "gradient_norm", None),
    ("learning_rate.png", "learning rate", "learning_rate", None),
    ("tokens_per_second.png", "tokens/s", "tokens_per_second", None),
)


def report(workdirs, output=None, curves=CURVES):
    """Draw each of `curves` for the runs in `workdirs`; returns the paths of the pictures.

    Raises FileNotFoundError where a workdir has no metrics, and ModuleNotFoundError's remedy as ValueError without matplotlib.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ValueError("report needs matplotlib: pip install -e '.[report]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    runs = {}
    for workdir in map(pathlib.Path, workdirs):
        rows = metrics.read(workdir / "metrics.jsonl")
        if not rows:
            raise FileNotFoundError(f"{workdir}/metrics.jsonl: no rows to draw; is {workdir} the workdir of a run?")
        runs[workdir.name] = rows
    folder = pathlib.Path(output or pathlib.Path(workdirs[0]) / "report")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, label, key, heldout in curves:
        figure, axes = pyplot.subplots(figsize=(7, 4), dpi=120, layout="constrained")
        for number, (title, rows) in enumerate(runs.items()):
            color = f"C{number}"
            steps, values = series(rows, key)
            axes.plot(steps, smooth(values), color=color, label=f"{title}, training", linewidth=1.5)
            axes.plot(steps, values, color=color, alpha=0.2, linewidth=0.6)
            if heldout:
                steps, values = series(rows, heldout)
                axes.plot(steps, values, "o--", color=color, label=f"{title}, held out", markersize=4, markerfacecolor="white")
        axes.set(xlabel="step", ylabel=label)
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(folder / name)
        pyplot.close(figure)
        paths.append(folder / name)
    return paths


def series(rows, key):
    """(steps, values) of the rows that have `key`; `accuracy` stands for the first name that ends so."""
    if key.endswith("accuracy"):
        prefix = key.removesuffix("accuracy")
        names = [name for row in rows for name in row if name.startswith(prefix) and name.endswith("_accuracy")]
        key = next((name for name in names if prefix or not name.startswith("heldout_")), key)
    rows = [row for row in rows if row.get(key) is not None]  # null: a skipped step's
    return [row["step"] for row in rows], [row[key] for row in rows]


def smooth(values, share=0.02):
    """An exponential mean over about `share` of the curve, started at the first value."""
    keep = 1 - 1 / max(1.0, share * len(values))
    result, mean = [], None
    for value in values:
        mean = value if mean is None else keep * mean + (1 - keep) * value
        result.append(mean)
    return result
