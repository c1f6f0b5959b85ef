"""glue RUN...: the table of GLUE (Wang et al. 2019) from fine-tuned runs, and submission files.

    python -m pretrain glue runs/cola runs/mrpc runs/mnli --mismatched dev_mismatched.tsv
    python -m pretrain glue runs/cola runs/mnli --test CoLA=cola_test.tsv MNLI-m=test_matched.tsv \\
        --output submission

A run with several seeds contributes the mean of their best scores, and its best seed makes the
submission. A run of several tasks contributes to each of them, with the scores of the step whose
`mean` is best. A task scores the mean of its metrics, MNLI the mean of its two
held-out parts; the average is over the tasks that are given.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping
from typing import Any

from data.corpus.json_lines import format_json
from data.corpus.paths import check_local
from pretrain.api.glue_submission import FILES, SeedScores, locate_submission, write_submission
from pretrain.cli.output_file import add_overwrite, check_output_file
from pretrain.host.terminal import print_notice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `glue` to a parser."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="workdirs of `finetune --task cola` and so on, also of --seeds or of several tasks",
    )
    parser.add_argument(
        "--mismatched",
        metavar="FILE",
        help="mismatched held-out part of MNLI, on which the MNLI run is also scored",
    )
    parser.add_argument(
        "--test",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=FILE",
        help=f"unlabelled test sets to predict; NAME is one of {', '.join(FILES)}",
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="folder for the submission files NAME.tsv"
    )
    add_overwrite(parser, "files of these names in FOLDER")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        metavar="B",
        help="texts per batch (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the table as one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the table and write the submission files; return 0."""
    tests = [test.partition("=")[::2] for test in args.test]
    for name, file in tests:
        if name not in FILES or not file:
            raise ValueError(
                f"--test {name}{'=' * bool(file)}{file}: expected NAME=FILE, where NAME is one of "
                f"{', '.join(FILES)}"
            )
    check_local(args.output or "", "the files")
    if bool(tests) != bool(args.output):
        raise ValueError(
            "--test NAME=FILE names the test sets and --output FOLDER the folder for their "
            "predictions: give both or neither"
        )
    for name, _ in tests:
        path = locate_submission(args.output, name)
        check_output_file(path, args.overwrite, [args.mismatched, *(file for _, file in tests)])
    if args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: must be at least 1")
    runs: dict[str, SeedScores] = {}
    for folder in args.runs:
        own = read_scores(folder)
        if twice := [task for task in own if task in runs]:
            raise ValueError(f"{folder}: a second run of {twice[0]}; give one run per task")
        runs |= own
    available = ", ".join(args.runs)
    for name, file in tests:
        if FILES[name] not in runs:
            raise ValueError(f"--test {name}={file}: no run of {FILES[name]} among {available}")
    if args.mismatched and "mnli" not in runs:
        raise ValueError(f"--mismatched {args.mismatched}: no run of mnli among {available}")
    scores = build_table(runs, args.mismatched)
    print(format_json(scores) if args.json else format_table(scores))
    for name, file in tests:
        # The standard output has one JSON object, or all lines.
        report = print_notice if args.json else print
        write_submission(runs[FILES[name]], name, file, args.output, args.batch_size, report)
    return 0


# ---- the table -----------------------------------------------------------------


def read_scores(folder: str) -> dict[str, SeedScores]:
    """Return the scores of a run, by GLUE task and workdir; a run with seeds has several workdirs.

    Raises:
      ValueError: if the run learned no task of GLUE, or was not measured with GLUE's metrics.
    """
    from pretrain.finetune.seed_summary import describe_unfinished, find_best_checkpoint
    from pretrain.finetune.tasks import TASKS

    workdirs = [folder]
    if os.path.exists(path := os.path.join(folder, "scores.json")):
        runs = read_object(path).get("runs")
        if not isinstance(runs, dict) or not runs:
            raise ValueError(f"{path}: names no runs; the same `finetune --seeds` writes it again")
        workdirs = [os.path.join(folder, os.path.basename(name)) for name in runs]
    origin = os.path.join(workdirs[0], "origin.json")
    names = []
    if os.path.exists(origin):
        names = str(read_object(origin).get("task") or "").split(", ")
    several, tasks = len(names) > 1, [name for name in names if name in FILES.values()]
    if not tasks:
        raise ValueError(
            f"{folder} is not a run of `finetune --task` {', '.join(dict.fromkeys(FILES.values()))}"
        )
    best = {
        workdir: find_best_checkpoint(workdir, "mean" if several else TASKS[tasks[0]].metrics[0])
        for workdir in workdirs
    }
    for workdir in workdirs:
        if line := describe_unfinished(workdir):
            print_notice(line)
    seed_scores = {}
    for task in tasks:
        metrics = {
            metric: f"{task}/{metric}" if several else metric for metric in TASKS[task].metrics
        }
        for workdir, (_, scores) in best.items():
            if missing := [name for name in metrics.values() if name not in scores]:
                remedy = "" if several else f"; GLUE needs evaluate.metrics={','.join(metrics)}"
                raise ValueError(
                    f"{workdir}: {', '.join(missing)} was not measured on the held-out split"
                    f"{remedy}"
                )
        seed_scores[task] = {
            workdir: (step, {metric: scores[name] for metric, name in metrics.items()})
            for workdir, (step, scores) in best.items()
        }
    return seed_scores


def read_object(path: str) -> dict[str, Any]:
    """Return the JSON object in a file; raise ValueError, which names it, for anything else."""
    with open(path, encoding="utf-8") as file:
        try:
            value = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")
    return value


def build_table(found: Mapping[str, SeedScores], mismatched: str | None = None) -> dict[str, Any]:
    """Return the table of GLUE, out of 100.

    Args:
      found: the scores of the runs by task.
      mismatched: file with MNLI's mismatched held-out part.

    Returns:
      `tasks`, {file name: {metric: mean over the seeds}}; `scores`, {task: one number};
      `average`, their mean; and `missing`, the file names without a run.
    """
    tasks: dict[str, dict[str, float]] = {}
    for name, task in FILES.items():
        if task in found and name not in ("MNLI-mm", "AX"):
            seeds = [scores for _, scores in found[task].values()]
            tasks[name] = {
                metric: 100 * statistics.fmean(scores[metric] for scores in seeds)
                for metric in seeds[0]
            }
    if mismatched:
        accuracies = [
            score_other_part(workdir, step, mismatched)
            for workdir, (step, _) in found["mnli"].items()
        ]
        position = list(tasks).index("MNLI-m") + 1
        tasks = dict(
            [
                *list(tasks.items())[:position],
                ("MNLI-mm", {"accuracy": 100 * statistics.fmean(accuracies)}),
                *list(tasks.items())[position:],
            ]
        )
    means: dict[str, list[float]] = {}
    for name, metrics in tasks.items():
        means.setdefault(FILES[name], []).append(statistics.fmean(metrics.values()))
    scores = {task: statistics.fmean(values) for task, values in means.items()}
    missing = [name for name in FILES if name not in tasks and name != "AX"]
    return {
        "tasks": tasks,
        "scores": scores,
        "average": statistics.fmean(scores.values()),
        "missing": missing,
    }


def score_other_part(workdir: str, step: int, source: str, task: str = "mnli") -> float:
    """Return the accuracy of a run on labelled examples other than its own."""
    from pretrain.api.evaluating import evaluate_checkpoint
    from pretrain.training.fits.label_checks import open_labelled_store
    from pretrain.workdir.workdir import Workdir

    opened = Workdir.open(workdir)
    several = opened.run.data.objective.tasks
    with open_labelled_store(opened, f"{task}={source}" if several else source) as store:
        scores = evaluate_checkpoint(opened, step=step, store=store)[2]
    return scores[f"{task}/accuracy" if several else "accuracy"]


def format_table(scores: Mapping[str, Any]) -> str:
    """Return the table as text."""
    lines = []
    for name, metrics in scores["tasks"].items():
        numbers = " / ".join(f"{value:.1f}" for value in metrics.values())
        lines.append(f"{name:<10}{numbers:<14}{' / '.join(metrics)}")
    count = len(scores["scores"])
    missing = f"; missing: {', '.join(scores['missing'])}" if scores["missing"] else ""
    coverage = (
        "over all nine tasks"
        if count == 9
        else f"over {count} of nine tasks, which is not the GLUE score"
    )
    return "\n".join([*lines, f"{'average':<10}{scores['average']:<14.1f}{coverage}{missing}"])
