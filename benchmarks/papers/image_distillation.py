"""Few labels of MNIST: a DeiT that learns from them alone, and DeiTs that learn from LeNet-5 too.

    python -m benchmarks.papers.image_distillation --images MNIST --runs RUNS --page

MNIST is a folder with train.npz and test.npz. The seed draws as many images of each class, which
are those with a label. The teacher learns from them, and each student for as many steps, with equal
initial parameters: from the labels alone, from the teacher's class (hard) or its distribution
(soft) too, or from the teacher's class alone, of all images (unlabelled). With --teacher-labels the
teacher has more labels than its students. The last step is scored on the test images: no score
selects a step. Finished runs are in a file, so that a second command adds the others.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import (
    format_command,
    format_title,
    int_at_least,
    multiple_of,
    require_paths,
    some_of,
)
from benchmarks.results_pages import add_result
from data.objectives.image_classification import ImageClassification
from models.config.deit import DeitConfig
from pretrain.config import Run, load, to_json

NAME = "image_distillation"
CLASSES, BATCH = 10, 64
TEACHER = "teacher"
# Of the student: smaller than its configuration, for short runs.
SIZES = ("model.width=64", "model.depth=4", "model.mlp=128", "optimizer.learning_rate=2e-3")
# {how a student learns: its objective}; "labels" has no teacher, "unlabelled" reads all images
STUDENTS = {
    "labels": (),
    "hard": ("data.objective.targets=hard",),
    "soft": ("data.objective.targets=soft",),
    "unlabelled": ("data.objective.targets=hard", "data.objective.teacher_share=1"),
}


def run_verb(*words: str) -> None:
    """Run a verb of the program. Raises SystemExit where it fails."""
    from pretrain.__main__ import main

    if status := main(list(words)):
        raise SystemExit(status)


def write_store(images: pathlib.Path, labels: int, seed: int, store: pathlib.Path) -> None:
    """Prepare `labels` images, equally many of each class, and all test images as held out."""
    with np.load(images / "train.npz") as content:
        x, y = content["x"], content["y"]
    rng, subset = np.random.default_rng(seed), store.with_suffix(".npz")
    drawn = [rng.permutation(np.flatnonzero(y == c))[: labels // CLASSES] for c in range(CLASSES)]
    rows = np.sort(np.concatenate(drawn)) if labels else np.arange(len(y))
    np.savez(subset, x=x[rows], y=y[rows])
    test = str(images / "test.npz")
    run_verb("prepare-images", str(subset), "--validation", test, "--output", str(store))


def forget_teacher(run: Run) -> Run:
    """Return the run of a student that learns from labels alone, with equal sizes and crops."""

    def copy_fields(kind: Any, other: Any) -> Any:
        return kind(**{f.name: getattr(other, f.name) for f in dataclasses.fields(kind)})

    objective = copy_fields(ImageClassification, run.data.objective)
    data = dataclasses.replace(run.data, objective=objective)
    return dataclasses.replace(run, model=copy_fields(DeitConfig, run.model), data=data)


def train_model(
    name: str, workdir: pathlib.Path, store: pathlib.Path, seed: int, steps: int
) -> dict[str, float]:
    """Return the accuracy on the test images after the last step, and the seconds of the command.

    A student with a teacher also reads the teacher's, from the folder `TEACHER`.
    """
    from pretrain.workdir.metrics_file import read_metrics

    settings = [f"data.store={store}", f"data.batch_size={BATCH}", f"train.seed={seed}"]
    settings += [f"train.steps={steps}", "optimizer.warmup_steps=100", "evaluate.samples=0"]
    settings += [f"evaluate.every={steps}", f"checkpoint.every={steps}"]
    path, began = workdir.with_suffix(".json"), time.perf_counter()
    if name == TEACHER:
        path.write_text(to_json(load("lenet_mnist", settings)))
    else:
        run = load("deit_mnist_distilled", [*settings, *SIZES, *STUDENTS[name]])
        path.write_text(to_json(run if STUDENTS[name] else forget_teacher(run)))
    if STUDENTS.get(name):
        teacher = str(workdir.with_name(TEACHER))
        run_verb("distil", str(path), "--teacher", teacher, "--workdir", str(workdir))
        path = workdir / "config.json"
    run_verb("train", str(path), "--workdir", str(workdir))
    rows = read_metrics(workdir / "metrics.jsonl")
    score = [row for row in rows if "heldout_loss" in row][-1]
    accuracy = score["heldout_image_classification_accuracy"]
    return {"accuracy": accuracy, "seconds": time.perf_counter() - began}


def run_seed(
    args: argparse.Namespace, seed: int, done: set[str], record: Callable[..., None]
) -> None:
    """Train the teacher and the students of one seed that are not finished."""
    if not {TEACHER, *args.students} - done:
        return
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_store(args.images, args.labels, seed, root / "few")
        stores = dict.fromkeys(STUDENTS, root / "few")
        if "unlabelled" in args.students:
            write_store(args.images, 0, seed, root / "all")
            stores["unlabelled"] = root / "all"
        stores[TEACHER] = root / "few"
        if args.teacher_labels != args.labels:
            write_store(args.images, args.teacher_labels, seed, root / "more")
            stores[TEACHER] = root / "more"
        for name in (TEACHER, *args.students):
            if name not in done or name == TEACHER:
                found = train_model(name, root / name, stores[name], seed, args.steps)
                if name not in done:
                    record(seed=seed, model=name, **found)


def format_rows(finished: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of accuracies in percent by the numbers of labels."""
    cases = sorted({(run["labels"], run["teacher_labels"], run["steps"]) for run in finished})
    names = [name for name in (TEACHER, *STUDENTS) if any(r["model"] == name for r in finished)]
    lines = [f"| labels | of the teacher | steps | {' | '.join(names)} |"]
    lines.append("|---" * (3 + len(names)) + "|")
    for case in cases:
        cells = []
        for name in names:
            values = [
                100 * run["accuracy"]
                for run in finished
                if (run["labels"], run["teacher_labels"], run["steps"], run["model"])
                == (*case, name)
            ]
            mean = f"{statistics.fmean(values):.2f}" if values else ""
            if len(values) > 1:
                mean += f" ± {statistics.stdev(values):.2f}"
            cells.append(f"{mean} ({len(values)})" if values else "")
        counts = [f"{count:,}" if count else "all" for count in case[:2]]
        lines.append(f"| {' | '.join([*counts, f'{case[2]:,}', *cells])} |")
    return lines


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--images", type=pathlib.Path, required=True, help="folder of MNIST")
    parser.add_argument("--labels", type=multiple_of(CLASSES, CLASSES), default=1000)
    parser.add_argument(
        "--teacher-labels", type=multiple_of(CLASSES, 0), help="0: all", default=None
    )
    parser.add_argument("--students", type=some_of(STUDENTS), default=[*STUDENTS])
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--steps", type=int_at_least(1), default=600)
    parser.add_argument("--runs", type=pathlib.Path, required=True, help="file of finished runs")
    parser.add_argument("--page", action="store_true", help="add the table of all finished runs")
    args = parser.parse_args()
    require_paths(parser, "--images", *(args.images / f"{part}.npz" for part in ("train", "test")))
    if args.teacher_labels is None:
        args.teacher_labels = args.labels
    case = {"labels": args.labels, "teacher_labels": args.teacher_labels, "steps": args.steps}
    load_at_start = os.getloadavg()[0]
    lines = args.runs.read_text().splitlines() if args.runs.exists() else []
    finished = [json.loads(line) for line in lines]

    def record(**found: Any) -> None:
        finished.append(case | found)
        with args.runs.open("a") as file:
            file.write(json.dumps(finished[-1]) + "\n")
        print(finished[-1], flush=True)

    for seed in range(args.seeds):
        same = [run for run in finished if run | case | {"seed": seed} == run]
        run_seed(args, seed, {run["model"] for run in same}, record)
    if args.page:
        text = (
            f"`{format_command()}`: accuracy in percent on the 10,000 test images, mean ± sample "
            f"standard deviation (number of seeds), after equal numbers of steps of {BATCH} "
            f"images. Students: `{' '.join(SIZES)}`."
        )
        title = "Distillation of image classifiers"
        add_result(NAME, [format_title(load_at_start), "", text, "", *format_rows(finished)], title)


if __name__ == "__main__":
    main()
