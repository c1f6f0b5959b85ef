"""The curves of one run, or of several over each other: one page that needs no network, and a PNG each."""

import json
import os
import pathlib
import re
from typing import NamedTuple

from etils import epath

from pretrain.reporting.html import render_html
from pretrain.workdir import environment_file, goodput, metrics_file, samples_file
from pretrain.workdir.retention import best

# (file, title of the y axis, the key of a row, its held-out counterpart); `accuracy` stands for the first name that ends so
CURVES = (
    ("loss.png", "loss (nats)", "loss", "heldout_loss"),
    ("accuracy.png", "share of targets guessed", "accuracy", "heldout_accuracy"),
    ("gradient_norm.png", "gradient norm", "gradient_norm", None),
    ("learning_rate.png", "learning rate", "learning_rate", None),
    ("tokens_per_second.png", "tokens/s", "tokens_per_second", None),
    ("mfu.png", "MFU", "mfu", None),
)
APART = (
    "step",
    "time",
    "tokens",
    "seconds",
    "heldout_targets",
    "heldout_rows",
)  # what is told elsewhere, or never changes
HELD = "heldout_"
POINTS = 400  # of a curve of the page; each is the mean of those that it stands for
NAME = "report.html"


def report(workdirs, output=None, pictures=True):
    """Write the page, and with `pictures` those of the curves that have a file, for the runs in `workdirs`; returns the paths.

    Raises FileNotFoundError where a workdir has no metrics, and ValueError where one is named twice.
    """
    runs = read(workdirs)
    folder = pathlib.Path(output or pathlib.Path(workdirs[0]) / "report")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(
        render_html("report", {"runs": [as_data(*run) for run in runs.items()]}), encoding="utf-8"
    )
    return [
        folder / NAME,
        *(draw({title: rows for title, (_, rows) in runs.items()}, folder) if pictures else ()),
    ]


def read(workdirs):
    """{title: (workdir, rows)}; a row has `mfu` where the run noted what its devices can do. A title is as short as tells the runs apart."""
    folders = [epath.Path(workdir) for workdir in workdirs]
    places = [
        str(folder) if "://" in str(workdir) else os.path.realpath(folder)
        for workdir, folder in zip(workdirs, folders)
    ]
    if again := next(
        (workdir for i, workdir in enumerate(workdirs) if places[i] in places[:i]), None
    ):
        raise ValueError(f"--workdir {again}: named twice; each run is drawn once")
    names = [place.rstrip("/").rpartition("/")[2] for place in places]
    runs = {}
    for folder, name in zip(folders, names):
        rows = metrics_file.read(folder / "metrics.jsonl")
        if not rows:
            raise FileNotFoundError(
                f"{folder}/metrics.jsonl: no rows to draw; is {folder} the workdir of a run?"
            )
        runs[name if names.count(name) == 1 else str(folder)] = (
            folder,
            with_mfu(rows, environment_file.read(folder)),
        )
    return runs


def with_mfu(rows, starts):
    """The rows with the share of their devices' peak that a step's FLOPs took, as far as the start that each belongs to tells."""
    told = []
    for row in rows:
        start = next((one for one in reversed(starts) if one["step"] < row["step"]), {})
        known = start.get("flops_per_step") and start.get("peak_flops") and row.get("seconds")
        told.append(
            row
            | (
                {"mfu": start["flops_per_step"] / row["seconds"] / start["peak_flops"]}
                if known
                else {}
            )
        )
    return told


def series(rows, key):
    """(steps, values) of the rows that have `key`."""
    rows = [row for row in rows if row.get(key) is not None]  # null: a skipped step's
    return [row["step"] for row in rows], [row[key] for row in rows]


class Curve(NamedTuple):
    """file: of its picture, None of those without one; train, heldout: the keys of its values in a row, or None."""

    file: str | None
    label: str
    train: str | None
    heldout: str | None


def drawn(rows):
    """The `Curve`s of a run: what is held out of CURVES and the scores that have no other, the others of CURVES, then whatever else."""
    keys = dict.fromkeys(
        key for row in rows for key, value in row.items() if isinstance(value, int | float)
    )
    found = []
    for file, label, *own in CURVES:
        train, heldout = (key and named(keys, key) for key in own)
        if train or heldout:
            found.append(Curve(file, label, train, heldout))
    known = {*APART, *(key for curve in found for key in curve[2:])}
    losses = [series(rows, key) for key in ("loss", HELD + "loss")]
    scores, rest = [], []
    for name in dict.fromkeys(key.removeprefix(HELD) for key in keys if key not in known):
        train, heldout = (
            key if key in keys and key not in known and series(rows, key) not in losses else None
            for key in (name, HELD + name)
        )
        if train and not any(series(rows, train)[1]):
            train = None
        label = name.replace("_", " ")
        if train:
            rest.append(Curve(None, label, train, heldout))
        elif heldout:
            scores.append(Curve(re.sub(r"\W+", "_", heldout) + ".png", label, None, heldout))
    return sorted(found + scores, key=lambda curve: curve.heldout is None) + rest


def named(keys, key):
    """The name in `keys` that a key of CURVES stands for, or None."""
    if not key.endswith("accuracy"):
        return key if key in keys else None
    prefix = key.removesuffix("accuracy")
    names = (
        name
        for name in keys
        if name.startswith(prefix)
        and name.endswith("_accuracy")
        and (prefix or not name.startswith(HELD))
    )
    return next(names, key if key in keys else None)


# ---- the page ----------------------------------------------------------------


def as_data(title, run):
    """What templates/report.html draws of a run: {title, curves, heldout, best, facts, samples, environment, goodput, config}."""
    workdir, rows = run
    path = workdir / "config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    ledger = goodput.read(workdir / goodput.NAME)
    scored = {
        row["step"]: told
        for row in rows
        if (
            told := {
                key: value
                for key, value in row.items()
                if key.startswith(HELD) and value is not None
            }
        )
    }
    return {
        "title": title,
        "curves": curves(rows),
        "heldout": {key: value for told in scored.values() for key, value in told.items()},
        "best": best_of(scored, config.get("checkpoint", {}).get("best") or "loss"),
        "facts": facts(rows),
        "samples": samples_file.by_row(samples_file.read(workdir / samples_file.NAME)),
        "environment": environment_file.read(workdir),
        "goodput": ledger and {"starts": ledger["starts"], "seconds": ledger["seconds"]},
        "config": flat(config),
    }


def best_of(scored, name):
    """{by, step, scores} of the step that is best by the score of that name, or None without one; scored: {step: {key: score}}."""
    step = best(
        {
            step: {key.removeprefix(HELD): value for key, value in told.items()}
            for step, told in scored.items()
        },
        name,
    )
    return (
        None
        if step is None
        else {"by": name.replace("_", " "), "step": step, "scores": scored[step]}
    )


def curves(rows):
    """[{label, train, heldout}] of what is `drawn`, each [[steps], [tokens], [hours], [values]] or None."""
    tokens = hours = 0.0
    along = {}
    for row in rows:
        tokens, hours = tokens + (row.get("tokens") or 0), hours + (row.get("seconds") or 0) / 3600
        along[row["step"]] = tokens, hours
    return [
        {"label": curve.label}
        | {
            kind: key and thinned(*series(rows, key), along)
            for kind, key in zip(("train", "heldout"), curve[2:])
        }
        for curve in drawn(rows)
    ]


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
    told = {
        "steps": rows[-1]["step"],
        "tokens": sum(row.get("tokens") or 0 for row in rows),
        "hours": seconds / 3600,
    }
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
        told["MFU, mean"] = sum(share * seconds for share, seconds in shares) / sum(
            seconds for _, seconds in shares
        )
    return told


def flat(tree, path=""):
    """{path: value} of nested objects."""
    if not isinstance(tree, dict):
        return {path: tree}
    return {
        name: value
        for key, part in tree.items()
        for name, value in flat(part, f"{path}.{key}" if path else key).items()
    }


# ---- the pictures ------------------------------------------------------------


def draw(runs, folder):
    """A PNG of each curve of the runs that has a file. Raises ValueError without matplotlib."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ValueError("pictures need matplotlib: pip install -e '.[report]'") from error
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
