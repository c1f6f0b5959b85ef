"""Compare fine-tuning from a pretrained encoder and from random weights, with several seeds.

    python -m benchmarks.papers.downstream --corpora ../shared/corpora [--from runs/bert_mini]
      [--only CoLA,RTE] [--again] [--page]

Each task of `downstream_tasks` runs `python -m pretrain finetune` twice, without and
with `--fresh all`, with the learning rates of RATES. Results are kept in WORK/results and are not
measured again without --again; an interrupted run is resumed. After each task
benchmarks/results/downstream.md is written from all results; --page only writes it.
`python -m benchmarks.papers.downstream_peer` adds the second part of the page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cached_results import format_verb, is_done, write_result
from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    ROOT,
    get_processor_name,
    report_errors,
    require_paths,
)
from benchmarks.papers.downstream_page import METRIC_LABELS, PAGE, format_page
from benchmarks.papers.downstream_tasks import TASKS, DownstreamTask, locate_files
from data.objectives import Classification
from data.store.atomic import write_atomically
from pretrain.evaluation.task_metrics import compute_metrics
from pretrain.workdir import metrics_file
from pretrain.workdir.workdir import Workdir

if TYPE_CHECKING:
    from data.config import Data

SEEDS = 3
# Peak learning rates from the pretrained encoder ("head" is new) and from random weights ("all").
# The page describes how they were chosen.
LEARNING_RATES = {"head": "3e-4", "all": "3e-4"}
# The commands that made runs/bert_mini.
ENCODER_COMMANDS = (
    "python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192",
    "python -m pretrain train bert_mini --workdir runs/bert_mini",
    "python -m pretrain train bert_mini_64 --workdir runs/bert_mini --allow-changes",
)


def make_arguments(
    name: str, task: DownstreamTask, start: str, files: Mapping[str, Any], args: argparse.Namespace
) -> list[str]:
    """Return the arguments of `python -m pretrain` that fine-tune on a task.

    Args:
      start: "head" or "all", the weights that start at random.
      files: {"train", "heldout"}: paths.
    """
    arguments = ["finetune", "--from", args.encoder, "--task", task.kind, "--train", files["train"]]
    arguments += ["--heldout", files["heldout"]] if files["heldout"] else []
    arguments += ["--workdir", args.work / f"{name}-{start}"]
    arguments += ["--epochs", task.epochs, "--seeds", SEEDS]
    arguments += ["--fresh", start] if start != "head" else []
    return [
        str(argument)
        for argument in (
            *arguments,
            f"optimizer.learning_rate={LEARNING_RATES[start]}",
            f"data.objective.length={task.length}",
            *task.more,
        )
    ]


# ---- measuring ---------------------------------------------------------------


def run_verb(arguments: Sequence[str], log: str | os.PathLike[str]) -> str:
    """Run a verb of Cloze, write its output to the file `log` and return it.

    Raises:
      RuntimeError: if the verb fails; the message has the end of its output.
    """
    print("python -m pretrain", *arguments, flush=True)
    with open(log, "w", encoding="utf-8") as file:
        program = [sys.executable, "-m", "pretrain", *arguments]
        status = subprocess.run(
            program, cwd=ROOT, env=os.environ | MALLOC_ENVIRONMENT, stdout=file, stderr=file
        ).returncode
    text = pathlib.Path(log).read_text(encoding="utf-8")
    if status:
        raise RuntimeError(
            f"python -m pretrain {' '.join(arguments)} ended with status {status}:\n{text[-2000:]}"
        )
    return text


def parse_json(text: str) -> dict[str, Any]:
    """Return the JSON object in the output of a verb with --json."""
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def score_constant(names: Sequence[str], labels: np.ndarray, answer: Any) -> dict[str, float]:
    """Return {metric: score} of predicting one class for all rows.

    Args:
      labels: of the rows.
      answer: the predicted class.
    """
    return compute_metrics(
        names, np.stack([np.full_like(labels, answer), labels, np.ones_like(labels)], axis=1)
    )


def count_examples(data: Data, names: Sequence[str]) -> dict[str, Any]:
    """Count the examples of a fine-tuning.

    Args:
      names: metrics.

    Returns:
      {train, heldout, cut, baseline}: the rows of each split, the truncated rows of `train`, and
      for a classification the scores on `heldout` of predicting the most frequent class of `train`.
    """
    from data.pipeline import Stream
    from data.store.reader import Store

    store = Store.open(data.store)
    train, heldout = (Stream(store, data, split=split) for split in ("train", "heldout"))
    counts_of: dict[str, Any] = {
        "train": train.num_rows,
        "heldout": heldout.num_rows,
        "cut": getattr(train.table, "num_truncated", 0),
        "baseline": {},
    }
    if isinstance(data.objective, Classification):
        values, counts = np.unique(train.split.labels, return_counts=True)
        counts_of["baseline"] = score_constant(
            names, np.asarray(heldout.split.labels), values[counts.argmax()]
        )
    return counts_of


def measure_task(
    name: str, task: DownstreamTask, start: str, args: argparse.Namespace
) -> dict[str, Any]:
    """Fine-tune on a task with all seeds and return the result, a JSON object.

    Args:
      start: "head" or "all", the weights that start at random.
    """
    files, workdir = locate_files(task, args.corpora, args.work), args.work / f"{name}-{start}"
    arguments = make_arguments(name, task, start, files, args)
    if args.again:
        shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True, exist_ok=True)
    run_verb(arguments, args.work / f"{name}-{start}.log")
    scores = json.loads((workdir / "scores.json").read_text())
    runs, run = list(scores["runs"].items()), Workdir.open(workdir / "seed-0").run
    names, also = [metric for metric in run.evaluate.metrics if metric in METRIC_LABELS], []
    if task.also:
        for path, best in runs:
            evaluation = ["evaluate", "--workdir", path, "--step", str(best["step"])]
            evaluation += ["--labelled", str(files["also"]), "--json"]
            metrics = parse_json(run_verb(evaluation, args.work / "also.log"))
            also.append({metric: metrics[metric] for metric in names})
    return {
        "task": name,
        "start": start,
        "metrics": names,
        "also": also,
        "also_file": task.also,
        "runs": [best | {"epoch": best["step"] / run.evaluate.every} for _, best in runs],
        "files": [task.train, task.heldout],
        "length": task.length,
        "rate": LEARNING_RATES[start],
        "epochs": task.epochs,
        "examples": count_examples(run.data, names),
        "hardware": f"{get_processor_name()}, {len(os.sched_getaffinity(0))} cores",
        "command": format_verb(arguments),
        "date": str(datetime.date.today()),
    }


def describe_encoder(args: argparse.Namespace) -> dict[str, Any]:
    """Return the encoder's size, training length and held-out loss; they are kept in a file."""
    path = args.work / "results" / "encoder.json"
    if not path.exists() or args.again:
        scores = parse_json(
            run_verb(
                ["evaluate", "--workdir", str(args.encoder), "--json"], args.work / "encoder.log"
            )
        )
        run = Workdir.open(args.encoder).run
        rows = metrics_file.read_metrics(args.encoder / "metrics.jsonl")
        tokens = sum(row["tokens"] for row in rows if row["step"] <= scores["step"])
        origin = {"name": str(args.encoder), "made": args.made, "note": args.note}
        origin |= {"step": scores["step"], "tokens": tokens}
        objective: Any = run.data.objective
        size = {name: getattr(run.model, name) for name in ("depth", "width", "vocab")}
        size |= {"length": objective.length}
        quality = {"loss": scores["masked_lm"], "accuracy": scores["masked_lm_accuracy"]}
        write_result(path, origin | size | quality)
    return json.loads(path.read_text())


def write_page(work: pathlib.Path) -> None:
    """Write benchmarks/results/downstream.md from the results in the folder `work`."""
    paths = sorted((work / "results").glob("*.json"))
    results = {path.stem: json.loads(path.read_text()) for path in paths}
    if "encoder" not in results:
        raise FileNotFoundError(f"{work / 'results'} has no result of an encoder; measure first")
    encoder = results.pop("encoder")
    peers = [results.pop(stem) for stem in list(results) if stem.startswith("peer-")]
    write_atomically(PAGE, format_page(encoder, list(results.values()), peers, list(TASKS)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that this program and benchmarks.papers.downstream_peer share."""
    parser.add_argument("--corpora", type=pathlib.Path, default=pathlib.Path("../shared/corpora"))
    encoder = pathlib.Path("runs/bert_mini")
    parser.add_argument(
        "--from",
        dest="encoder",
        type=pathlib.Path,
        default=encoder,
        help="workdir of the pretrained encoder",
    )
    parser.add_argument(
        "--made",
        default=ENCODER_COMMANDS,
        nargs="+",
        metavar="COMMAND",
        help="the commands that made the encoder, for the page",
    )
    parser.add_argument("--note", default="", help="a remark about the encoder, for the page")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("runs/downstream"))
    parser.add_argument(
        "--again", action="store_true", help="measure again even if there is a result"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_arguments(parser)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(TASKS),
        help=f"of {','.join(TASKS)}",
    )
    parser.add_argument("--page", action="store_true", help="only write the page")
    args = parser.parse_args()
    if unknown := set(args.only) - set(TASKS):
        parser.error(f"unknown task: {', '.join(sorted(unknown))}; allowed: {', '.join(TASKS)}")
    os.chdir(ROOT)
    (args.work / "results").mkdir(parents=True, exist_ok=True)
    if not args.page:
        require_paths(parser, "--from", args.encoder)
        sources = [TASKS[name] for name in args.only]
        files = [args.corpora / part for task in sources for part in (task.train, task.heldout)]
        require_paths(parser, "--corpora", *files)
        describe_encoder(args)
        for name in args.only:
            for start in LEARNING_RATES:
                path = args.work / "results" / f"{name}-{start}.json"
                files = locate_files(TASKS[name], args.corpora, args.work)
                arguments = make_arguments(name, TASKS[name], start, files, args)
                with report_errors(parser):
                    is_known = not args.again and is_done(path, arguments)
                if not is_known:
                    write_result(path, measure_task(name, TASKS[name], start, args))
                    write_page(args.work)
    with report_errors(parser):
        write_page(args.work)


if __name__ == "__main__":
    main()
