"""What pretraining is worth downstream: the same fine-tuning from a pretrained encoder and from random weights, several seeds.

    python -m benchmarks.downstream --corpora ../shared/corpora [--from runs/bert_mini] [--only CoLA,RTE] [--again] [--page]

Each task of benchmarks/downstream_tasks.py is `python -m pretrain finetune`, once as it is and once with `--fresh all`, otherwise the same; RATES says at which
rate. What is measured lies in WORK/results, and is not run again unless --again says so; what was stopped in between goes on where it was.
After each task benchmarks/downstream.md is written anew from all that lies there; --page writes it and runs nothing.
`python -m benchmarks.downstream_peer` adds the second part.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from benchmarks.downstream_page import NAMES, PAGE, page
from benchmarks.downstream_tasks import TASKS, files_of
from benchmarks.harness import KEEP_PAGES, ROOT, processor_name
from data.objectives import Classification
from data.store.atomic import write_atomically
from pretrain.evaluation.task_metrics import measured
from pretrain.workdir import metrics_file
from pretrain.workdir.checkpoints import read_run

SEEDS = 3
RATES = {
    "head": "3e-4",
    "all": "3e-4",
}  # from the pretrained encoder, from random weights: see the page
MADE = (
    "python -m pretrain prepare BOOKS --output runs/books --vocab-size 8192",
    "python -m pretrain train bert_mini --workdir runs/bert_mini",
    "python -m pretrain train bert_mini_64 --workdir runs/bert_mini --allow-changes",
)  # of runs/bert_mini


def command(name, task, start, files, args):
    """The words behind `python -m pretrain` that fine-tune."""
    words = ["finetune", "--from", args.encoder, "--task", task.kind, "--train", files["train"]]
    words += ["--heldout", files["heldout"]] if files["heldout"] else []
    words += ["--workdir", args.work / f"{name}-{start}", "--epochs", task.epochs, "--seeds", SEEDS]
    words += ["--fresh", start] if start != "head" else []
    return [
        str(word)
        for word in (
            *words,
            f"optimizer.learning_rate={RATES[start]}",
            f"data.objective.length={task.length}",
            *task.more,
        )
    ]


# ---- measuring ---------------------------------------------------------------


def verb(words, log):
    """What a verb prints; all of it goes into the file `log`. Raises RuntimeError, with its end, where it fails."""
    print("python -m pretrain", *words, flush=True)
    with open(log, "w", encoding="utf-8") as file:
        program = [sys.executable, "-m", "pretrain", *words]
        status = subprocess.run(
            program, cwd=ROOT, env=os.environ | KEEP_PAGES, stdout=file, stderr=file
        ).returncode
    text = pathlib.Path(log).read_text(encoding="utf-8")
    if status:
        raise RuntimeError(
            f"python -m pretrain {' '.join(words)} ended with status {status}:\n{text[-2000:]}"
        )
    return text


def printed(text):
    """The JSON object that a verb printed with --json."""
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


def constant(names, right, common):
    """{metric: number} of one and the same answer for all."""
    return measured(
        names, np.stack([np.full_like(right, common), right, np.ones_like(right)], axis=1)
    )


def examples_of(data, names):
    """Of the `data.config.Data` of a fine-tuning: how many rows each part has, how many of `train` lose their end, and as "baseline" what
    the commonest class of `train` is worth on `heldout`, where there are classes of rows."""
    from data.pipeline import Stream
    from data.store.reader import Store

    store = Store.open(data.store)
    train, heldout = (Stream(store, data, split=split) for split in ("train", "heldout"))
    found = {
        "train": train.rows,
        "heldout": heldout.rows,
        "cut": getattr(train.table, "cut", 0),
        "baseline": {},
    }
    if isinstance(data.objective, Classification):
        values, counts = np.unique(train.split.labels, return_counts=True)
        found["baseline"] = constant(
            names, np.asarray(heldout.split.labels), values[counts.argmax()]
        )
    return found


def shown(words):
    """The command as a person gives it."""
    return " ".join(["python -m pretrain", *words])


def is_done(path, words):
    """Whether a result lies there. Raises ValueError where it is that of another command."""
    if not path.exists():
        return False
    if (was := json.loads(path.read_text())["command"]) != shown(words):
        told = f"{path} was measured by\n  {was}\nand not by\n  {shown(words)}"
        raise ValueError(f"{told}\n--again measures it anew, or --work names another folder")
    return True


def measure(name, task, start, args):
    """The result of one fine-tuning with all its seeds, as it is kept in a file."""
    files, workdir = files_of(task, args.corpora, args.work), args.work / f"{name}-{start}"
    words = command(name, task, start, files, args)
    if args.again:
        shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True, exist_ok=True)
    verb(words, args.work / f"{name}-{start}.log")
    scores = json.loads((workdir / "scores.json").read_text())
    runs, run = list(scores["runs"].items()), read_run(workdir / "seed-0")
    names, also = [metric for metric in run.evaluate.metrics if metric in NAMES], []
    if task.also:
        for path, best in runs:
            scored = [
                "evaluate",
                "--workdir",
                path,
                "--step",
                str(best["step"]),
                "--labelled",
                str(files["also"]),
                "--json",
            ]
            found = printed(verb(scored, args.work / "also.log"))
            also.append({metric: found[metric] for metric in names})
    return {
        "task": name,
        "start": start,
        "metrics": names,
        "also": also,
        "also_file": task.also,
        "runs": [best | {"epoch": best["step"] / run.evaluate.every} for _, best in runs],
        "files": [task.train, task.heldout],
        "length": task.length,
        "rate": RATES[start],
        "epochs": task.epochs,
        "examples": examples_of(run.data, names),
        "hardware": f"{processor_name()}, {len(os.sched_getaffinity(0))} cores",
        "command": shown(words),
        "date": str(datetime.date.today()),
    }


def encoder_facts(args):
    """What the encoder is: its size, how long it has learned, and its loss on its own held-out part."""
    path = args.work / "results" / "encoder.json"
    if not path.exists() or args.again:
        found = printed(
            verb(["evaluate", "--workdir", str(args.encoder), "--json"], args.work / "encoder.log")
        )
        run, rows = read_run(args.encoder), metrics_file.read(args.encoder / "metrics.jsonl")
        tokens = sum(row["tokens"] for row in rows if row["step"] <= found["step"])
        made = {
            "name": str(args.encoder),
            "made": args.made,
            "note": args.note,
            "step": found["step"],
            "tokens": tokens,
        }
        size = {name: getattr(run.model, name) for name in ("depth", "width", "vocab")} | {
            "length": run.data.objective.length
        }
        write_result(
            path,
            made | size | {"loss": found["masked_lm"], "accuracy": found["masked_lm_accuracy"]},
        )
    return json.loads(path.read_text())


def write_result(path, result):
    """Write a result as a JSON file."""
    write_atomically(path, json.dumps(result, indent=1) + "\n")


def write_page(work):
    """benchmarks/downstream.md of what lies in the folder of results."""
    found = {
        path.stem: json.loads(path.read_text())
        for path in sorted((work / "results").glob("*.json"))
    }
    encoder = found.pop("encoder")
    peers = [found.pop(stem) for stem in list(found) if stem.startswith("peer-")]
    write_atomically(PAGE, page(encoder, list(found.values()), peers, list(TASKS)))


def arguments(parser):
    """What this program and the one beside transformers' are told alike."""
    parser.add_argument("--corpora", type=pathlib.Path, default=pathlib.Path("../shared/corpora"))
    encoder = pathlib.Path("runs/bert_mini")
    parser.add_argument(
        "--from",
        dest="encoder",
        type=pathlib.Path,
        default=encoder,
        help="the workdir of the pretrained encoder",
    )
    parser.add_argument(
        "--made", default=MADE, nargs="+", metavar="COMMAND", help="what made it, for the page"
    )
    parser.add_argument("--note", default="", help="what else is to be said of it")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("runs/downstream"))
    parser.add_argument(
        "--again", action="store_true", help="measure again what was measured already"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments(parser)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(TASKS),
        help=f"of {','.join(TASKS)}",
    )
    parser.add_argument("--page", action="store_true", help="write the page and measure nothing")
    args = parser.parse_args()
    if unknown := set(args.only) - set(TASKS):
        parser.error(f"no such task: {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    os.chdir(ROOT)
    (args.work / "results").mkdir(parents=True, exist_ok=True)
    if not args.page:
        encoder_facts(args)
        for name in args.only:
            for start in RATES:
                path, files = (
                    args.work / "results" / f"{name}-{start}.json",
                    files_of(TASKS[name], args.corpora, args.work),
                )
                if args.again or not is_done(path, command(name, TASKS[name], start, files, args)):
                    write_result(path, measure(name, TASKS[name], start, args))
                    write_page(args.work)
    write_page(args.work)


if __name__ == "__main__":
    main()
