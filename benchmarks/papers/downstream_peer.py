"""Compare fine-tuning with `transformers.Trainer`: same exported weights, batches and settings.

    python -m benchmarks.papers.downstream_peer --corpora ../shared/corpora [--tasks CoLA,RTE]
      [--what alike,scores,times] [--again]

For tasks that `benchmarks.papers.downstream` has measured from the encoder; Cloze's scores are from
there. For each seed the run's initial parameters, including the head, are exported and its batches
are written. The Trainer (`downstream_torch`) trains on them and predicts the held-out
rows after each epoch:
- scores: the programs differ only in the random numbers of the head's dropout.
- alike: without dropout, the losses of an epoch's steps are compared.
- times: Cloze (with unrolled layers and its input pipeline), the Trainer in a plain environment,
  and a hand-tuned loop, as in benchmarks/speed/step.py, take turns of a quarter of an epoch. Their
  losses before the first step must agree. It needs an idle machine.

All results go into benchmarks/results/downstream.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.cached_results import write_result
from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    ROOT,
    Worker,
    get_processor_name,
    interleave_workers,
)
from benchmarks.papers.downstream import add_arguments, write_page
from benchmarks.papers.downstream_tasks import TASKS
from benchmarks.peer_environment import find_peers_python, make_mkl_environment
from data.objectives import Classification
from pretrain.evaluation.task_metrics import compute_metrics
from pretrain.finetune.tasks import TASKS as KINDS

TOLERANCE = 1e-4  # largest difference of the losses before the first step
TURNS_PER_EPOCH = 4

# ---- the peer's inputs ---------------------------------------------------------


def stack_batches(batches: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Any]:
    """Return {key: array [N, ...]} of a list of batches."""
    return {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


def write_inputs(
    workdir: pathlib.Path, encoder: pathlib.Path, folder: pathlib.Path, dropout: float | None = None
) -> dict[str, Any]:
    """Write the inputs of the PyTorch programs for one of our fine-tunings.

    Args:
      workdir, encoder: workdirs of the finished fine-tuning and of its encoder.
      folder: where to write.
      dropout: of the head; the run's by default.

    Returns:
      {steps, epoch: steps of an epoch, labels and row_weights of the held-out rows}.
    """
    from data.pipeline import Stream
    from data.store.reader import Store
    from pretrain.convert.read_write import write_model
    from pretrain.finetune.start import make_initial_params
    from pretrain.workdir.trained import open_trained
    from pretrain.workdir.workdir import Workdir

    run, pretrained = Workdir.open(workdir).run, open_trained(encoder)
    store = Store.open(run.data.store)
    params, _ = make_initial_params(run, pretrained, "head")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "model", ignore_errors=True)  # of an earlier measurement
    write_model(folder / "model", run.model, params, pretrained.vocabulary)
    stream, heldout = (
        Stream(store, run.data, split=split, seed=run.train.seed) for split in ("train", "heldout")
    )
    np.savez(
        folder / "train.npz",
        **stack_batches([stream.build_batch(step) for step in range(run.train.steps)]),
    )
    held_out = stack_batches(
        [heldout.build_evaluation_batch(index) for index in range(heldout.num_evaluation_batches)]
    )
    np.savez(folder / "heldout.npz", **held_out)
    optimizer: Any = run.optimizer
    settings = {
        "rate": optimizer.learning_rate,
        "warmup": optimizer.warmup_steps,
        "betas": [optimizer.beta1, optimizer.beta2],
        "epsilon": optimizer.epsilon,
        "weight_decay": optimizer.weight_decay,
        "clip": optimizer.max_grad_norm,
        "steps": run.train.steps,
        "seed": run.train.seed,
        "dropout": run.model.dropout if dropout is None else dropout,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "steps": run.train.steps,
        "epoch": run.evaluate.every,
        "labels": held_out["labels"].reshape(-1),
        "row_weights": held_out["row_weights"].reshape(-1),
    }


# ---- measuring ---------------------------------------------------------------


def time_epoch(
    workdir: pathlib.Path, folder: pathlib.Path, encoder: pathlib.Path, epoch: int
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Time one epoch of `epoch` steps in turns.

    Returns:
      ({program: {seconds: [turns], cpu: [turns], loss: before the first step}}, versions).
    """
    with (
        Worker(make_cloze_command(workdir, encoder), MALLOC_ENVIRONMENT) as cloze,
        Worker(make_torch_command(folder, "trainer")) as trainer,
        Worker(
            make_torch_command(folder, "loop"), MALLOC_ENVIRONMENT | make_mkl_environment()
        ) as tuned,
    ):
        workers = {"cloze": cloze, "trainer": trainer, "tuned": tuned}
        ready = {name: worker.read_answer() for name, worker in workers.items()}
        check_losses({name: answer["loss"] for name, answer in ready.items()})
        interleave_workers(workers, 1, steps=3)  # compiles, and touches memory for the first time
        answers = interleave_workers(workers, TURNS_PER_EPOCH, steps=-(-epoch // TURNS_PER_EPOCH))
    times = {
        name: {key: [turn[key] for turn in turns] for key in ("seconds", "cpu")}
        for name, turns in answers.items()
    }
    times = {name: turns | {"loss": ready[name]["loss"]} for name, turns in times.items()}
    return times, list(
        dict.fromkeys(version for answer in ready.values() for version in answer["versions"])
    )


def make_cloze_command(*arguments: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """Return the command of Cloze's worker."""
    return [sys.executable, "-m", "benchmarks.papers.downstream_cloze", *arguments]


def make_torch_command(folder: pathlib.Path, way: str) -> list[str | os.PathLike[str]]:
    """Return the command of a PyTorch worker; `way` is "trainer" or "loop"."""
    program = ROOT / "benchmarks" / "papers" / "downstream_torch.py"
    return [find_peers_python(), program, folder, way]


def check_losses(losses: Mapping[str, float]) -> None:
    """Raise RuntimeError unless all programs start with the same loss."""
    if max(losses.values()) - min(losses.values()) > TOLERANCE:
        raise RuntimeError(
            f"the losses before the first step are {losses}: the programs do not do the same work"
        )


def train_peer(
    folder: pathlib.Path, facts: Mapping[str, Any], metrics: Sequence[str]
) -> list[dict[str, float]]:
    """Return {metric: score} after each epoch of the Trainer.

    Args:
      facts: the result of `write_inputs`.
    """
    epoch_scores = []
    with Worker(
        make_torch_command(folder, "trainer"), MALLOC_ENVIRONMENT | make_mkl_environment()
    ) as worker:
        worker.read_answer()
        for done in range(0, facts["steps"], facts["epoch"]):
            worker.ask_worker(steps=min(facts["epoch"], facts["steps"] - done))
            predicted = worker.ask_worker(steps=0)["predicted"]
            rows = np.stack([predicted, facts["labels"], facts["row_weights"]], axis=1)
            epoch_scores.append(compute_metrics(metrics, rows))
    return epoch_scores


def read_result(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the result of `benchmarks.papers.downstream` for a task from the encoder."""
    return json.loads((args.work / "results" / f"{name}-head.json").read_text())


def compare_scores(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the scores of one task, a JSON object."""
    result, theirs = read_result(name, args), []
    for seed, ours in enumerate(result["runs"]):
        folder = args.work / "peer" / f"{name}-{seed}"
        facts = write_inputs(args.work / f"{name}-head" / f"seed-{seed}", args.encoder, folder)
        epochs = train_peer(folder, facts, result["metrics"])
        theirs.append(max(epochs, key=lambda epoch: epoch[result["metrics"][0]]))
        print(name, seed, theirs[-1], ours, flush=True)
    ours = [{metric: run[metric] for metric in result["metrics"]} for run in result["runs"]]
    scores = {"task": name, "metrics": result["metrics"], "ours": ours, "theirs": theirs}
    return scores | describe_run(name, "scores", args)


def compare_losses(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure the largest difference of an epoch's losses without dropout; return a JSON object."""
    workdir, folder = args.work / f"{name}-head" / "seed-0", args.work / "peer" / f"{name}-0"
    facts = write_inputs(workdir, args.encoder, folder, dropout=0.0)
    with (
        Worker(
            make_cloze_command(workdir, args.encoder, "model.dropout=0.0"), MALLOC_ENVIRONMENT
        ) as cloze,
        Worker(
            make_torch_command(folder, "loop"), MALLOC_ENVIRONMENT | make_mkl_environment()
        ) as loop,
    ):
        losses = []
        for worker in (cloze, loop):
            worker.read_answer()
            losses.append(worker.ask_worker(steps=facts["epoch"])["losses"])
    apart = float(np.abs(np.subtract(*losses)).max())
    result = {"task": name, "apart": apart, "steps": facts["epoch"]}
    return result | describe_run(name, "alike", args)


def compare_times(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure and return the seconds of an epoch of one task, a JSON object."""
    load = os.getloadavg()[0]
    workdir, folder = args.work / f"{name}-head" / "seed-0", args.work / "peer" / f"{name}-0"
    facts = write_inputs(workdir, args.encoder, folder)
    turns, versions = time_epoch(workdir, folder, args.encoder, facts["epoch"])
    print(name, turns, flush=True)
    turn_steps = -(-facts["epoch"] // TURNS_PER_EPOCH)
    result = {"task": name, "times": turns, "steps_of_a_turn": turn_steps, "epoch": facts["epoch"]}
    result |= {"versions": versions, "layers": "unrolled"}
    result |= {"length": read_result(name, args)["length"], "load": [load, os.getloadavg()[0]]}
    return result | describe_run(name, "times", args)


def describe_run(name: str, comparison: str, args: argparse.Namespace) -> dict[str, str]:
    """Return the command, the date and the hardware of a measurement."""
    return {
        "command": f"python -m benchmarks.papers.downstream_peer --corpora {args.corpora} "
        f"--tasks {name} --what {comparison}",
        "date": str(datetime.date.today()),
        "hardware": f"{get_processor_name()}, {len(os.sched_getaffinity(0))} cores",
    }


COMPARISONS = {"alike": compare_losses, "scores": compare_scores, "times": compare_times}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_arguments(parser)
    listed = lambda text: text.split(",")  # noqa: E731
    parser.add_argument(
        "--tasks",
        type=listed,
        default=["CoLA", "RTE"],
        help="classification tasks; default: CoLA,RTE",
    )
    parser.add_argument(
        "--what",
        type=listed,
        default=list(COMPARISONS),
        help="comparisons, of alike,scores,times; default: all",
    )
    args = parser.parse_args()
    if unknown := set(args.what) - set(COMPARISONS):
        parser.error(f"--what {', '.join(sorted(unknown))}: allowed are {', '.join(COMPARISONS)}")
    known = [
        name
        for name, task in TASKS.items()
        if getattr(KINDS[task.kind], "objective", None) is Classification
    ]
    if unknown := set(args.tasks) - set(known):
        parser.error(
            f"not a classification task: {', '.join(sorted(unknown))}; allowed: {', '.join(known)}"
        )
    os.chdir(ROOT)
    for name in args.tasks:
        if not (args.work / "results" / f"{name}-head.json").exists():
            parser.error(
                f"{name} has no Cloze result: run "
                f"python -m benchmarks.papers.downstream --only {name}"
            )
        for what in args.what:
            path = args.work / "results" / f"peer-{what}-{name}.json"
            if not path.exists() or args.again:
                write_result(path, COMPARISONS[what](name, args))
                write_page(args.work)


if __name__ == "__main__":
    main()
