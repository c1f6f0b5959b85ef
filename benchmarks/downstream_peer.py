"""Fine-tuning beside `transformers.Trainer`: the same exported weights, head included, the same batches, the same settings.

    python -m benchmarks.downstream_peer --corpora ../shared/corpora [--tasks CoLA,RTE] [--what alike,scores,times] [--again]

Of tasks that `benchmarks.downstream` has measured from the encoder, whose scores are those of Cloze here. For each of their seeds the
parameters that the run began with are exported, and its batches written; the Trainer (benchmarks/downstream_torch.py) learns from them and tells its
answers for the held-out part after each epoch. What differs is the draws of the head's dropout: without, the losses of an epoch's steps are
compared (--what alike). Then the epochs' time: Cloze (the step of
`train`, layers unrolled, fed by its own input pipeline), the Trainer in a plain environment, and a loop written and tuned by hand, as in
benchmarks/step.py, take turns of a quarter of an epoch each: that wants a machine with nothing else to do (--what times). Their losses
before the first step must agree. All goes into benchmarks/downstream.md.
"""

import argparse
import datetime
import json
import os
import sys

import numpy as np

from benchmarks.downstream import arguments, write_page, write_result
from benchmarks.downstream_tasks import TASKS
from benchmarks.harness import (
    KEEP_PAGES,
    ROOT,
    Worker,
    intel_path,
    interleaved,
    peers_python,
    processor_name,
)
from data.objectives import Classification
from pretrain.evaluation.task_metrics import measured
from pretrain.finetune.tasks import TASKS as KINDS

TOLERANCE = 1e-4  # of the losses before the first step
PARTS = 4  # turns of an epoch


# ---- what the other side is given --------------------------------------------


def stacked(batches):
    """{key: array [N, ...]} of a list of batches."""
    return {key: np.stack([batch[key] for batch in batches]) for key in batches[0]}


def material(workdir, encoder, folder, dropout=None):
    """Write what the side of PyTorch reads for a fine-tuning of ours, of which there is a finished workdir. Returns its facts.

    dropout: of the head; that of the run unless given.
    """
    from data.pipeline import Stream
    from data.store.reader import Store
    from pretrain.convert.read_write import write_model
    from pretrain.finetune.start import make_initial_params
    from pretrain.inference.trained import open_trained
    from pretrain.workdir.checkpoints import read_run

    run, pretrained = read_run(workdir), open_trained(encoder)
    store = Store.open(run.data.store)
    params, _ = make_initial_params(run, pretrained, "head")
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / "model", run.model, params, pretrained.vocabulary, overwrite=True)
    stream, heldout = (
        Stream(store, run.data, split=split, seed=run.train.seed) for split in ("train", "heldout")
    )
    np.savez(
        folder / "train.npz", **stacked([stream.batch(step) for step in range(run.train.steps)])
    )
    held = stacked([heldout.evaluation_batch(index) for index in range(heldout.evaluation_steps)])
    np.savez(folder / "heldout.npz", **held)
    o, epoch = run.optimizer, run.evaluate.every
    settings = {
        "rate": o.learning_rate,
        "warmup": o.warmup_steps,
        "betas": [o.beta1, o.beta2],
        "epsilon": o.epsilon,
        "weight_decay": o.weight_decay,
        "clip": o.max_grad_norm,
        "steps": run.train.steps,
        "seed": run.train.seed,
        "dropout": run.model.dropout if dropout is None else dropout,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    return {
        "steps": run.train.steps,
        "epoch": epoch,
        "right": held["labels"].reshape(-1),
        "weight": held["row_weights"].reshape(-1),
    }


# ---- measuring ---------------------------------------------------------------


def timed(workdir, folder, encoder, epoch):
    """{way: {"seconds": of each turn, "cpu", "loss": before the first step}} of one epoch, in turns, and the versions."""
    with (
        Worker(cloze_words(workdir, encoder), KEEP_PAGES) as cloze,
        Worker(torch(folder, "trainer")) as trainer,
        Worker(torch(folder, "loop"), KEEP_PAGES | intel_path()) as tuned,
    ):
        workers = {"cloze": cloze, "trainer": trainer, "tuned": tuned}
        ready = {name: worker.hear() for name, worker in workers.items()}
        check_losses({name: told["loss"] for name, told in ready.items()})
        interleaved(workers, 1, steps=3)  # compilation, and the first touch of memory
        found = interleaved(workers, PARTS, steps=-(-epoch // PARTS))
    times = {
        name: {key: [turn[key] for turn in turns] for key in ("seconds", "cpu")}
        for name, turns in found.items()
    }
    times = {name: told | {"loss": ready[name]["loss"]} for name, told in times.items()}
    return times, list(
        dict.fromkeys(version for told in ready.values() for version in told["versions"])
    )


def cloze_words(*words):
    """The words that start this side."""
    return [sys.executable, "-m", "benchmarks.downstream_cloze", *words]


def torch(folder, way):
    """The words that start the other side."""
    return [peers_python(), ROOT / "benchmarks" / "downstream_torch.py", folder, way]


def check_losses(losses):
    """Raise RuntimeError unless all began with the same loss."""
    if max(losses.values()) - min(losses.values()) > TOLERANCE:
        raise RuntimeError(f"the losses before the first step are {losses}: not the same work")


def trained(folder, facts, metrics):
    """[{metric: number}] after each epoch of the Trainer."""
    found = []
    with Worker(torch(folder, "trainer"), KEEP_PAGES | intel_path()) as worker:
        worker.hear()
        for done in range(0, facts["steps"], facts["epoch"]):
            worker.ask(steps=min(facts["epoch"], facts["steps"] - done))
            predicted = worker.ask(steps=0)["predicted"]
            found.append(
                measured(metrics, np.stack([predicted, facts["right"], facts["weight"]], axis=1))
            )
    return found


def result_of(name, args):
    """What `benchmarks.downstream` has measured of a task from the encoder."""
    return json.loads((args.work / "results" / f"{name}-head.json").read_text())


def scores(name, args):
    """The scores of one task, as they are kept in a file."""
    result, theirs = result_of(name, args), []
    for seed, ours in enumerate(result["runs"]):
        folder = args.work / "peer" / f"{name}-{seed}"
        facts = material(args.work / f"{name}-head" / f"seed-{seed}", args.encoder, folder)
        theirs.append(
            max(
                trained(folder, facts, result["metrics"]),
                key=lambda each: each[result["metrics"][0]],
            )
        )
        print(name, seed, theirs[-1], ours, flush=True)
    ours = [{metric: run[metric] for metric in result["metrics"]} for run in result["runs"]]
    return {"task": name, "metrics": result["metrics"], "ours": ours, "theirs": theirs} | told(
        name, "scores", args
    )


def alike(name, args):
    """How far the losses of an epoch's steps are apart where nothing is drawn, as it is kept in a file."""
    workdir, folder = args.work / f"{name}-head" / "seed-0", args.work / "peer" / f"{name}-0"
    facts = material(workdir, args.encoder, folder, dropout=0.0)
    with (
        Worker(cloze_words(workdir, args.encoder, "model.dropout=0.0"), KEEP_PAGES) as cloze,
        Worker(torch(folder, "loop"), KEEP_PAGES | intel_path()) as loop,
    ):
        losses = []
        for worker in (cloze, loop):
            worker.hear()
            losses.append(worker.ask(steps=facts["epoch"])["losses"])
    return {
        "task": name,
        "apart": float(np.abs(np.subtract(*losses)).max()),
        "steps": facts["epoch"],
    } | told(name, "alike", args)


def times(name, args):
    """The seconds of an epoch of one task, as they are kept in a file."""
    load, workdir, folder = (
        os.getloadavg()[0],
        args.work / f"{name}-head" / "seed-0",
        args.work / "peer" / f"{name}-0",
    )
    facts = material(workdir, args.encoder, folder)
    turns, versions = timed(workdir, folder, args.encoder, facts["epoch"])
    print(name, turns, flush=True)
    found = {
        "task": name,
        "times": turns,
        "steps_of_a_turn": -(-facts["epoch"] // PARTS),
        "epoch": facts["epoch"],
    }
    found |= {"versions": versions, "layers": "unrolled"}
    return (
        found
        | {"length": result_of(name, args)["length"], "load": [load, os.getloadavg()[0]]}
        | told(name, "times", args)
    )


def told(name, what, args):
    """How it was measured, when, and on what."""
    return {
        "command": f"python -m benchmarks.downstream_peer --corpora {args.corpora} --tasks {name} --what {what}",
        "date": str(datetime.date.today()),
        "hardware": f"{processor_name()}, {len(os.sched_getaffinity(0))} cores",
    }


WHAT = {"alike": alike, "scores": scores, "times": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments(parser)
    listed = lambda text: text.split(",")  # noqa: E731
    parser.add_argument(
        "--tasks",
        type=listed,
        default=["CoLA", "RTE"],
        help="that tell classes; CoLA,RTE unless given",
    )
    parser.add_argument(
        "--what", type=listed, default=list(WHAT), help="of alike,scores,times; all unless given"
    )
    args = parser.parse_args()
    if unknown := set(args.what) - set(WHAT):
        parser.error(f"--what {', '.join(sorted(unknown))}: of {', '.join(WHAT)}")
    known = [
        name
        for name, task in TASKS.items()
        if getattr(KINDS[task.kind], "objective", None) is Classification
    ]
    if unknown := set(args.tasks) - set(known):
        parser.error(
            f"no task that tells classes: {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    os.chdir(ROOT)
    for name in args.tasks:
        if not (args.work / "results" / f"{name}-head.json").exists():
            parser.error(f"{name} is not measured: python -m benchmarks.downstream --only {name}")
        for what in args.what:
            path = args.work / "results" / f"peer-{what}-{name}.json"
            if not path.exists() or args.again:
                write_result(path, WHAT[what](name, args))
                write_page(args.work)


if __name__ == "__main__":
    main()
