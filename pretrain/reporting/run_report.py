"""The curves of one run, or of several over each other: one page that needs no network, and a PNG each."""

import json
import os
import pathlib

from etils import epath

from pretrain.reporting.curve_images import draw
from pretrain.reporting.curves import HELD, drawn, series
from pretrain.reporting.html import render_html
from pretrain.workdir import environment_file, goodput, metrics_file, samples_file
from pretrain.workdir.retention import best

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
