"""The curves of one run, or of several over each other: one page that needs no network, and a PNG each."""

import json
import pathlib

from etils import epath

from pretrain import environment, goodput, metrics, samples
from pretrain.page import page

# (file, title of the y axis, the key of a row, its held-out counterpart)
CURVES = (
    ("loss.png", "loss (nats)", "loss", "heldout_loss"),
    ("accuracy.png", "share of targets guessed", "accuracy", "heldout_accuracy"),
    ("gradient_norm.png", "gradient norm", "gradient_norm", None),
    ("learning_rate.png", "learning rate", "learning_rate", None),
    ("tokens_per_second.png", "tokens/s", "tokens_per_second", None),
    ("mfu.png", "MFU", "mfu", None),
)
POINTS = 400  # of a curve of the page; each is the mean of those that it stands for
NAME = "report.html"


def report(workdirs, output=None, pictures=True):
    """Write the page, and with `pictures` each of CURVES, for the runs in `workdirs`; returns the paths.

    Raises FileNotFoundError where a workdir has no metrics.
    """
    runs = read(workdirs)
    folder = pathlib.Path(output or pathlib.Path(workdirs[0]) / "report")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(page("report", {"runs": [as_data(*run) for run in runs.items()]}), encoding="utf-8")
    return [folder / NAME, *(draw({title: rows for title, (_, rows) in runs.items()}, folder) if pictures else ())]


def read(workdirs):
    """{title: (workdir, rows)}; a row has `mfu` where the run noted what its devices can do. A title is as short as tells the runs apart."""
    folders = [epath.Path(workdir) for workdir in workdirs]
    names = [folder.name for folder in folders]
    runs = {}
    for folder, name in zip(folders, names):
        rows = metrics.read(folder / "metrics.jsonl")
        if not rows:
            raise FileNotFoundError(f"{folder}/metrics.jsonl: no rows to draw; is {folder} the workdir of a run?")
        runs[name if names.count(name) == 1 else str(folder)] = folder, with_mfu(rows, environment.read(folder))
    return runs


def with_mfu(rows, starts):
    """The rows with the share of their devices' peak that a step's FLOPs took, as far as the start that each belongs to tells."""
    told = []
    for row in rows:
        start = next((one for one in reversed(starts) if one["step"] < row["step"]), {})
        known = start.get("flops_per_step") and start.get("peak_flops") and row.get("seconds")
        told.append(row | ({"mfu": start["flops_per_step"] / row["seconds"] / start["peak_flops"]} if known else {}))
    return told


def series(rows, key):
    """(steps, values) of the rows that have `key`; `accuracy` stands for the first name that ends so."""
    if key.endswith("accuracy"):
        prefix = key.removesuffix("accuracy")
        names = [name for row in rows for name in row if name.startswith(prefix) and name.endswith("_accuracy")]
        key = next((name for name in names if prefix or not name.startswith("heldout_")), key)
    rows = [row for row in rows if row.get(key) is not None]  # null: a skipped step's
    return [row["step"] for row in rows], [row[key] for row in rows]


# ---- the page ----------------------------------------------------------------


def as_data(title, run):
    """What pages/report.html draws of a run: {title, curves, heldout, facts, samples, environment, goodput, config}."""
    workdir, rows = run
    config = workdir / "config.json"
    ledger = goodput.read(workdir / goodput.NAME)
    return {
        "title": title,
        "curves": curves(rows),
        "heldout": {key: value for row in rows for key, value in row.items() if key.startswith("heldout_") and value is not None},
        "facts": facts(rows),
        "samples": samples.by_row(samples.read(workdir / samples.NAME)),
        "environment": environment.read(workdir),
        "goodput": ledger and {"starts": ledger["starts"], "seconds": ledger["seconds"]},
        "config": flat(json.loads(config.read_text())) if config.exists() else {},
    }


def curves(rows):
    """[{label, train, heldout}], each [[steps], [tokens], [hours], [values]]: CURVES first, then whatever else the rows have."""
    tokens = hours = 0.0
    along = {}
    for row in rows:
        tokens, hours = tokens + (row.get("tokens") or 0), hours + (row.get("seconds") or 0) / 3600
        along[row["step"]] = tokens, hours
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, int | float) and not key.startswith("heldout_"))
    drawn = [(label, key, heldout) for _, label, key, heldout in CURVES]
    named = {key for _, key, _ in drawn} | {"step", "time", "tokens", "seconds"} | {key for key in keys if key.endswith("_accuracy")}
    losses = series(rows, "loss")
    rest = [(key.replace("_", " "), key, f"heldout_{key}") for key in keys if key not in named and series(rows, key) != losses and any(series(rows, key)[1])]
    found = []
    for label, key, heldout in drawn + rest:
        train, held = (thinned(*series(rows, name), along) if name else None for name in (key, heldout))
        if train or held:
            found.append({"label": label, "train": train, "heldout": held})
    return found


def thinned(steps, values, along, most=POINTS):
    """At most `most` points, or None for none."""
    if not steps:
        return None
    each = -(-len(steps) // most)
    ends = [min(start + each, len(steps)) for start in range(0, len(steps), each)]
    kept = [steps[end - 1] for end in ends]
    means = [sum(values[start:end]) / (end - start) for start, end in zip([0, *ends], ends)]
    return [kept, [along[step][0] for step in kept], [along[step][1] for step in kept], means]


def facts(rows):
    """{what: value} of a run in short."""
    seconds = sum(row.get("seconds") or 0 for row in rows)
    told = {"steps": rows[-1]["step"], "tokens": sum(row.get("tokens") or 0 for row in rows), "hours": seconds / 3600}
    _, losses = series(rows, "loss")
    if losses:
        last = losses[-max(1, len(losses) // 50) :]
        told["loss, mean of the last 2 %"] = sum(last) / len(last)
    if skipped := sum(bool(row.get("skipped")) for row in rows):
        told["skipped steps"] = skipped
    if seconds:
        told["tokens/s, mean"] = told["tokens"] / seconds
    shares = [(row["mfu"], row["seconds"]) for row in rows if "mfu" in row]
    if shares:
        told["MFU, mean"] = sum(share * seconds for share, seconds in shares) / sum(seconds for _, seconds in shares)
    return told


def flat(tree, path=""):
    """{path: value} of nested objects."""
    if not isinstance(tree, dict):
        return {path: tree}
    return {name: value for key, part in tree.items() for name, value in flat(part, f"{path}.{key}" if path else key).items()}


# ---- the pictures ------------------------------------------------------------


def draw(runs, folder):
    """A PNG of each of CURVES that a run has. Raises ValueError without matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ValueError("pictures need matplotlib: pip install -e '.[report]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    paths = []
    for name, label, key, heldout in CURVES:
        if not any(series(rows, key)[0] for rows in runs.values()):
            continue
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


def smooth(values, share=0.02):
    """An exponential mean over about `share` of the curve, started at the first value."""
    keep = 1 - 1 / max(1.0, share * len(values))
    result, mean = [], None
    for value in values:
        mean = value if mean is None else keep * mean + (1 - keep) * value
        result.append(mean)
    return result
