"""Write the report of one run or of several: one HTML page without network access, and images."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from data.corpus.buckets import check_bucket
from data.corpus.json_lines import replace_nonfinite
from data.corpus.paths import check_local, is_remote
from data.corpus.untrusted import check_special_files
from data.objectives import CLASSES, Objective
from data.store.atomic import name_in_disk_errors, write_atomically
from pretrain.config import flatten_config, read_settings
from pretrain.reporting.curve_images import draw_curves
from pretrain.reporting.curves import (
    HELDOUT_PREFIX,
    describe_key,
    extract_series,
    find_phase_starts,
    list_curves,
)
from pretrain.reporting.html import is_page, render_html
from pretrain.reporting.patch_figures import PatchFigures, describe_figures, draw_figures
from pretrain.workdir import environment_file, goodput, metrics_file, samples_file
from pretrain.workdir.retention import find_best_step
from pretrain.workdir.workdir import Workdir

# Points of a curve of the page; each is the mean of the values that it replaces.
MAX_POINTS = 400
REPORT_NAME = "report.html"


class RunLines(NamedTuple):
    """What the files of a run have, line by line.

    Attributes:
      rows: the rows of metrics.jsonl: their numbers, the name of the phase if there are phases, and
        `mfu` if the run recorded the peak FLOP/s of its devices.
    """

    workdir: Workdir
    rows: list[dict[str, Any]]
    starts: list[dict[str, Any]]
    config: dict[str, Any]

    @property
    def unit(self) -> str:
        """What the throughput counts: `Objective.unit`."""
        data = self.config.get("data")
        objective = data.get("objective") if isinstance(data, dict) else None
        kind = objective.get("type") if isinstance(objective, dict) else None
        return CLASSES[kind].unit if isinstance(kind, str) and kind in CLASSES else Objective.unit


def write_report(
    workdirs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    write_images: bool = True,
    find_figures: Callable[[Workdir], PatchFigures | None] = lambda workdir: None,
) -> list[pathlib.Path]:
    """Write the page and the images about the runs in `workdirs` and return the paths.

    Args:
      output: folder on this machine; `report` in the first workdir by default.
      find_figures: returns what the model of a workdir has learned to see; None for models of text.

    Raises:
      FileExistsError: if the folder has a page or images that no report of this program is.
      FileNotFoundError: if a workdir has no metrics.
      ValueError: if a workdir is given twice, or the folder is not on this machine.
    """
    check_local(output or "", "the report")
    runs = read_runs(workdirs)
    if output is None and is_remote(workdirs[0]):
        raise ValueError(f"{workdirs[0]}: name an --output on this machine for its report")
    folder = pathlib.Path(output or pathlib.Path(workdirs[0]) / "report")
    check_folder(folder, write_images)
    folder.mkdir(parents=True, exist_ok=True)
    figures = {title: find_figures(run.workdir) for title, run in runs.items()}
    described = [describe_run(title, run, figures[title]) for title, run in runs.items()]
    page = render_html("report", {"runs": described})
    write_atomically(folder / REPORT_NAME, page)
    if not write_images:
        return [folder / REPORT_NAME]
    rows = {title: run.rows for title, run in runs.items()}
    units = {title: run.unit for title, run in runs.items()}
    with name_in_disk_errors(folder):
        images = draw_curves(rows, folder, units=units)
        for number, (title, figure) in enumerate(figures.items(), 1):
            if figure:
                name = "patches.png" if len(runs) == 1 else f"patches_{number}.png"
                images.append(folder / name)
                draw_figures(title, figure, images[-1])
    return [folder / REPORT_NAME, *images]


def check_folder(folder: pathlib.Path, write_images: bool) -> None:
    """Raise FileExistsError if a report would replace files of another program or person.

    The page of an earlier report, whose head no other page has, allows that it and the images
    next to it are replaced.
    """
    page = folder / REPORT_NAME
    if is_page(page, "report"):
        return
    others = sorted(folder.glob("*.png")) if write_images else []
    if found := next((path for path in (page, *others) if os.path.lexists(path)), None):
        raise FileExistsError(
            f"{found} is there, and {folder} has no report of Cloze that may be replaced; name "
            "another --output"
        )


def read_runs(workdirs: Sequence[str | os.PathLike[str]]) -> dict[str, RunLines]:
    """Return {title: lines} of runs.

    A title is the name of the workdir, or its path if several have the same name.
    """
    for workdir in workdirs:
        check_bucket(workdir)
        check_special_files(workdir)
    folders = [Workdir.open(workdir) for workdir in workdirs]
    paths = [
        str(folder) if is_remote(workdir) else os.path.realpath(folder)
        for workdir, folder in zip(workdirs, folders)
    ]
    if repeated := next(
        (workdir for i, workdir in enumerate(workdirs) if paths[i] in paths[:i]), None
    ):
        raise ValueError(f"--workdir {repeated} is given twice; give each run once")
    names = [path.rstrip("/").rpartition("/")[2] for path in paths]
    runs = {}
    for folder, name in zip(folders, names):
        rows = [
            {
                key: value
                for key, value in row.items()
                if isinstance(value, str if key == "phase" else int | float | None)
            }
            for row in folder.read_metrics()
        ]
        if not rows:
            raise FileNotFoundError(
                f"{folder}/metrics.jsonl has no rows to draw; is {folder} the workdir of a run?"
            )
        title = name if names.count(name) == 1 else str(folder)
        starts = environment_file.read_starts(folder)
        config = read_settings(folder / "config.json")
        runs[title] = RunLines(folder, add_mfu(rows, starts), starts, config)
    return runs


def add_mfu(
    rows: Sequence[dict[str, Any]], starts: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows with their MFU: a step's FLOPs over the peak FLOPs of the devices.

    Args:
      starts: the records of the run's starts; the last one before a row has its figures. A row
        without figures gets no MFU, and one that exceeds the peak gets None.
    """
    result = []
    for row in rows:
        start = next((start for start in reversed(starts) if start["step"] < row["step"]), {})
        if start.get("flops_per_step") and start.get("peak_flops") and row.get("seconds"):
            flops = next(
                (
                    phase["flops_per_step"]
                    for phase in start.get("phases", ())
                    if row["step"] <= phase["stop"]
                ),
                start["flops_per_step"],
            )
            figures = (flops, row["seconds"], start["peak_flops"])
            result.append(row | {"mfu": metrics_file.compute_mfu(*figures)})
        else:
            result.append(row | {})
    return result


# ---- the page ----------------------------------------------------------------


def describe_run(title: str, run: RunLines, figures: PatchFigures | None = None) -> dict[str, Any]:
    """Return the data of a run for templates/report.html.

    Returns:
      {title, unit, curves, phases, heldout, best, facts, samples, figures, environment, goodput,
      config}.
    """
    workdir, rows, starts, config = run
    rule = config.get("checkpoint")
    metric = rule.get("best") if isinstance(rule, dict) else None
    ledger = goodput.read_ledger(workdir / goodput.NAME, "the report has no goodput")
    scores_by_step = {}
    for row in rows:
        scores = {
            key: value
            for key, value in row.items()
            if key.startswith(HELDOUT_PREFIX) and value is not None
        }
        if scores:
            scores_by_step[row["step"]] = scores
    return {
        "title": title,
        "unit": run.unit,
        "curves": make_curves(rows, run.unit),
        "phases": describe_phases(rows),
        "heldout": {
            key: value for scores in scores_by_step.values() for key, value in scores.items()
        },
        "best": describe_best_step(
            scores_by_step, metric if metric and isinstance(metric, str) else "loss"
        ),
        "facts": summarize_rows(rows, run.unit) | make_origin_fact(workdir),
        "samples": samples_file.group_by_row(
            samples_file.read_samples(workdir / samples_file.NAME)
        ),
        "figures": figures and describe_figures(figures),
        "environment": starts,
        "goodput": ledger and {"starts": ledger["starts"], "seconds": ledger["seconds"]},
        "config": replace_nonfinite(flatten_config(config)),
    }


def make_origin_fact(workdir: Workdir) -> dict[str, str]:
    """Return {"begun with": what the first parameters come from}; {} for random ones."""
    origin = workdir.describe_origin()
    return {"begun with": origin} if origin else {}


def describe_best_step(
    scores_by_step: Mapping[int, dict[str, float]], metric: str
) -> dict[str, Any] | None:
    """Return {by, step, scores} of the step with the best score `metric`, or None without one.

    Args:
      scores_by_step: {step: {key: score}}.
    """
    step = find_best_step(
        {
            step: {key.removeprefix(HELDOUT_PREFIX): value for key, value in scores.items()}
            for step, scores in scores_by_step.items()
        },
        metric,
    )
    if step is None:
        return None
    return {"by": describe_key(metric), "step": step, "scores": scores_by_step[step]}


def make_curves(rows: Sequence[dict[str, Any]], unit: str = "tokens") -> list[dict[str, Any]]:
    """Return the curves of a run, which counts `unit`.

    Returns:
      [{label, train, heldout, ema}]; all but the label are [steps, tokens, hours, values], or None.
    """
    progress = measure_progress(rows)
    return [
        {"label": curve.label}
        | {
            kind: key and thin_series(*extract_series(rows, key), progress)
            for kind, key in zip(("train", "heldout", "ema"), curve[2:])
        }
        for curve in list_curves(rows, unit)
    ]


def measure_progress(rows: Sequence[dict[str, Any]]) -> dict[int, tuple[float, float]]:
    """Return {step: (tokens, hours)} since the start of a run."""
    tokens = hours = 0.0
    progress = {}
    for row in rows:
        tokens, hours = tokens + (row.get("tokens") or 0), hours + (row.get("seconds") or 0) / 3600
        progress[row["step"]] = tokens, hours
    return progress


def describe_phases(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return [{name, at}] of a run's phases; `at` has the step, tokens and hours of its begin."""
    progress = measure_progress(rows)
    return [
        {"name": name, "at": [step, *progress[step]]}
        for name, step in find_phase_starts(rows).items()
    ]


def thin_series(
    steps: Sequence[int],
    values: Sequence[float],
    progress: Mapping[int, tuple[float, float]],
    max_points: int = MAX_POINTS,
) -> list[Sequence[float]] | None:
    """Return a series of at most `max_points` points, or None if it has no values.

    Args:
      progress: {step: (tokens, hours)} since the start.

    Returns:
      [steps, tokens, hours, values]; each value is the mean of the values that it replaces.
    """
    if not steps:
        return None
    stride = -(-len(steps) // max_points)
    ends = [min(start + stride, len(steps)) for start in range(0, len(steps), stride)]
    last_steps = [steps[end - 1] for end in ends]
    means = [sum(values[start:end]) / (end - start) for start, end in zip([0, *ends], ends)]
    tokens = [progress[step][0] for step in last_steps]
    hours = [progress[step][1] for step in last_steps]
    return [last_steps, tokens, hours, means]


def summarize_rows(rows: Sequence[dict[str, Any]], unit: str = "tokens") -> dict[str, float]:
    """Return {name: value} of the summary of a run, which counts `unit`."""
    seconds = sum(row.get("seconds") or 0 for row in rows)
    summary = {
        "steps": rows[-1]["step"],
        unit: sum(row.get("tokens") or 0 for row in rows),
        "hours": seconds / 3600,
    }
    _, losses = extract_series(rows, "loss")
    if losses:
        last = losses[-max(1, len(losses) // 50) :]
        summary["loss, mean of the last 2 %"] = sum(last) / len(last)
    if skipped := sum(bool(row.get("skipped")) for row in rows):
        summary["skipped steps"] = skipped
    if seconds:
        summary[f"{unit}/s, mean"] = summary[unit] / seconds
    mfus = [(row["mfu"], row["seconds"]) for row in rows if row.get("mfu") is not None]
    if over := sum("mfu" in row for row in rows) - len(mfus):
        summary["steps over the peak, without MFU"] = over
    if mfus:
        summary["MFU, mean"] = sum(mfu * seconds for mfu, seconds in mfus) / sum(
            seconds for _, seconds in mfus
        )
    return summary
