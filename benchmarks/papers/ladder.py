"""What each step of the ladder to BERT buys: one table of pretrained models after equal time.

    python -m benchmarks.papers.ladder --corpora CORPORA --folder FOLDER --minutes 10 --page

Every model is pretrained on the books of CORPORA, of which all but ELMo read the same pieces of
words, and fine-tuned on labelled texts; and the same model from random parameters, with the
same steps. The floor is scikit-learn's logistic regression on the counts of words.

Time is equal by rates: the models first train in turns of some seconds, so that other programs slow
all of them alike, and the steps of each are `--minutes` times its steps a minute. The last step of
every run is scored: no score selects a step. FOLDER has the stores, the workdirs and the finished
runs, so that a second command adds what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from benchmarks.cached_results import require_settings
from benchmarks.equal_time import EqualTime, make_environment
from benchmarks.harness import (
    duration,
    format_command,
    format_title,
    int_at_least,
    int_between,
    report_errors,
    require_paths,
    some_of,
)
from benchmarks.papers.classifiers import (
    NUM_FOLDS,
    SETS,
    Rows,
    list_files,
    list_splits,
    train_floor,
)
from benchmarks.papers.ladder_models import RUNGS, STEP_TOKENS, VOCAB, list_overrides
from benchmarks.program_turns import read_heldout_loss, run_to_end
from benchmarks.results_pages import add_result

NAME = "ladder"
FLOOR = "counts"
REFERENCE = "bert"  # measured again with models that are added later
SETTINGS = ("optimizer.learning_rate=5e-4", "data.batch_size=32", "data.objective.length=40")


def prepare_books(books: pathlib.Path, folder: pathlib.Path, kind: str) -> None:
    """Write a store of the books unless it exists: "store", of pieces, or "words".

    Words are written as in the labelled texts, with blanks around punctuation and in lower case.
    """
    if (folder / kind / "manifest.json").exists():
        return
    prepare = [sys.executable, "-m", "pretrain", "prepare", "--output", folder / kind]
    if kind == "words":
        source, options = folder / "words.jsonl", ["--algorithm", "words", "--vocab-size", 60_000]
        write_words(books, source)
    else:
        source, options = books, ["--vocab-size", VOCAB, "--lowercase"]
    run_to_end([*prepare, source, *options])


def write_words(books: pathlib.Path, output: pathlib.Path) -> None:
    """Write the sections of the books, with blanks around punctuation and in lower case."""
    with output.open("w", encoding="utf-8") as file:
        for path in sorted(books.glob("*.jsonl")):
            for record in path.read_text(encoding="utf-8").split("\n"):
                if record:
                    lines = json.loads(record)["text"].lower().split("\n")
                    words = [" ".join(re.findall(r"\w+|[^\w\s]", line)) for line in lines]
                    file.write(json.dumps({"text": "\n".join(words)}) + "\n")


def list_words(folder: pathlib.Path, name: str, steps: int) -> list[str]:
    """Return the configuration and the overrides of a model's pretraining."""
    return [RUNGS[name].config, *list_overrides(RUNGS[name], folder, steps)]


def fine_tune(
    name: str, folder: pathlib.Path, train: Rows, test: Rows, run: dict[str, Any], epochs: int
) -> float:
    """Return the accuracy of the last step of a fine-tuning.

    run: its set, fold, seed, and whether it begins with the pretrained parameters.
    """
    from pretrain.workdir.metrics_file import read_metrics

    start = "pretrained" if run["pretrained"] else "random"
    root = folder / "tuned" / f"{name}_{run['set']}_{run['fold']}_{start}_{run['seed']}"
    root.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", train), ("test", test)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (root / f"{part}.jsonl").write_text(lines)
    steps = epochs * -(-len(train) // 32)
    words = ["finetune", "--from", folder / name, "--task", "classification"]
    words += [*SETTINGS, *RUNGS[name].tuning]
    words += ["--train", root / "train.jsonl", "--heldout", root / "test.jsonl"]
    words += ["--workdir", root / "w", "--fresh", "head" if run["pretrained"] else "all"]
    words += [f"train.steps={steps}", f"evaluate.every={steps}", f"checkpoint.every={steps}"]
    words += [f"train.seed={run['seed']}", "evaluate.samples=0"]
    run_to_end([sys.executable, "-m", "pretrain", *words], make_environment(folder))
    scores = read_metrics(root / "w" / "metrics.jsonl")
    return [row["heldout_accuracy"] for row in scores if "heldout_accuracy" in row][-1]


def list_runs(names: Sequence[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the runs of the table, the floor's among them."""
    runs = []
    for one in args.sets:
        for fold in range(1 if SETS[one].test else args.folds):
            place = {"set": one, "fold": fold}
            runs.append({"model": FLOOR, "pretrained": False, "seed": 0, **place})
            runs += [
                {"model": name, "pretrained": pretrained, "seed": seed, **place}
                for seed in range(args.seeds)
                for name in names
                for pretrained in (True, False)
            ]
    return runs


def complete_runs(
    names: Sequence[str], folder: pathlib.Path, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return the finished runs, after those that were missing."""
    path = folder / "runs.jsonl"
    finished = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = [{key: run[key] for key in run if key != "accuracy"} for run in finished]
    splits = {one: list_splits(args.corpora, SETS[one], args.folds) for one in args.sets}
    for run in list_runs(names, args):
        if run in done:
            continue
        train, test = splits[run["set"]][run["fold"]]
        if run["model"] == FLOOR:
            accuracy = train_floor(train, test)["accuracy"]
        else:
            accuracy = fine_tune(run["model"], folder, train, test, run, args.epochs)
        finished.append(run | {"accuracy": accuracy})
        with path.open("a") as file:
            file.write(json.dumps(finished[-1]) + "\n")
        print(finished[-1], flush=True)
    return finished


def format_accuracy(runs: list[dict[str, Any]], name: str, one: str, pretrained: bool) -> str:
    """Return the mean accuracy of a cell in percent, with the number of several runs."""
    values = [
        100 * run["accuracy"]
        for run in runs
        if (run["model"], run["set"], run["pretrained"]) == (name, one, pretrained)
    ]
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else ""
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} ({len(values)})"


def format_table(
    runs: list[dict[str, Any]], sets: Sequence[str], folder: pathlib.Path, steps: dict[str, int]
) -> list[str]:
    """Return the table, from the floor upwards."""
    cells = [f"{one}, {start}" for one in sets for start in ("random", "pretrained")]
    head = ["model", "a state reads", "steps", "tokens", "nats", *cells]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    floor = [cell for one in sets for cell in (format_accuracy(runs, FLOOR, one, False), "")]
    lines.append(f"| counts of words | | | | | {' | '.join(floor)} |")
    for name, rung in RUNGS.items():
        if name not in steps or not (folder / name / "finished").exists():
            continue
        scores = [
            format_accuracy(runs, name, one, which) for one in sets for which in (False, True)
        ]
        tokens = f"{steps[name] * STEP_TOKENS / 1e6:.2f} M"
        loss = f"{read_heldout_loss(folder / name):.2f}"
        row = [rung.name, rung.reads, f"{steps[name]:,}", tokens, loss, *scores]
        lines.append(f"| {' | '.join(row)} |")
    return lines


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="folder of the sets")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of runs and stores")
    parser.add_argument("--minutes", type=duration, default=10, help="of pretraining")
    parser.add_argument("--measure", type=duration, default=80, help="seconds to measure speeds")
    parser.add_argument("--models", type=some_of(RUNGS), default=list(RUNGS))
    parser.add_argument("--sets", type=some_of(SETS), default=["SST-binary", "MR"])
    parser.add_argument("--folds", type=int_between(1, NUM_FOLDS), default=1, help="of MR and CR")
    parser.add_argument("--seeds", type=int_at_least(1), default=1)
    parser.add_argument("--epochs", type=int_at_least(1), default=2, help="of fine-tuning")
    parser.add_argument("--page", action="store_true", help="add the table of all finished runs")
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books, *list_files(args.corpora, args.sets))
    load_at_start, folder = os.getloadavg()[0], args.folder.absolute()
    with report_errors(parser):
        settings = {"minutes": args.minutes, "epochs": args.epochs}
        require_settings(folder / "settings.json", settings, (folder / "steps.json").exists())
        for kind in {RUNGS[name].store for name in (REFERENCE, *args.models)}:
            prepare_books(books, folder, kind)
        trainings = EqualTime(folder, partial(list_words, folder), REFERENCE)
        steps = trainings.find_steps(args.models, args.minutes, args.measure)
    for name in args.models:
        trainings.pretrain_model(name, folder / name, steps[name])
        print(
            f"{name}: {steps[name]:,} steps, {read_heldout_loss(folder / name):.3f} nats",
            flush=True,
        )
    finished = complete_runs(args.models, folder, args)
    if args.page:
        note = (
            f"`{format_command()}`: accuracy in percent on the held-out texts after {args.epochs} "
            f"epochs of fine-tuning, from random and from pretrained parameters, mean ± sample "
            "standard deviation (number of runs). Pretraining: steps of 1,024 tokens, of equal "
            "time on this machine; nats of a held-out token, of BERT those that are hidden."
        )
        lines = [format_title(load_at_start, f"JAX {jax.__version__}"), "", note, ""]
        lines += format_table(finished, args.sets, folder, steps)
        add_result(NAME, lines, "The ladder to BERT")


if __name__ == "__main__":
    main()
