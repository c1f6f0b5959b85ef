"""What a run learned, beside the best that a model without context can do.

    python benchmarks/proof.py runs/bert_mini [--batches 500] [--note TEXT]

The baseline knows how often each target occurs (counted on `--batches` training batches, one added to each count) and nothing else: it
always guesses the commonest, and its loss is the cross-entropy of those frequencies. Model and baseline are scored on the same held-out
targets, all of them. A dated section is appended to benchmarks/results/<name of the run>.md, and the curves are drawn beside it.
"""

import argparse
import datetime
import os
import pathlib
import platform
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from data.pipeline import Stream  # noqa: E402
from data.store.reader import Store  # noqa: E402
from pretrain.cli.evaluate import evaluate  # noqa: E402
from pretrain.reporting.curves import CURVES  # noqa: E402
from pretrain.reporting.run_report import report  # noqa: E402
from pretrain.workdir import metrics_file  # noqa: E402
from pretrain.workdir.checkpoints import read_run  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"


def count(batches, size):
    """How often each id is a target that counts."""
    total = np.zeros(size, np.int64)
    for batch in batches:
        total += np.bincount(batch["labels"][batch["label_weights"] > 0], minlength=size)
    return total


def unigram(run, store, batches):
    """(loss, accuracy, perplexity) of the baseline on the held-out part."""
    size = run.model.vocab
    train = Stream(store, run.data, split="train", seed=run.train.seed)
    seen = count((train.batch(step) for step in range(batches)), size) + 1
    held = count(
        Stream(store, run.data, split="heldout", seed=run.train.seed).evaluation_batches(), size
    )
    loss = -(held * np.log(seen / seen.sum())).sum() / held.sum()
    return loss, held[seen.argmax()] / held.sum(), np.exp(loss)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument(
        "--note",
        default="",
        help="what the workdir does not know: other commands that made it, what else ran meanwhile",
    )
    args = parser.parse_args()
    run = read_run(args.workdir)
    store = Store.open(run.data.store)
    rows = metrics_file.read(args.workdir / "metrics.jsonl")
    step, _, scores = evaluate(args.workdir)
    loss, accuracy, perplexity = unigram(run, store, args.batches)
    name = run.data.objective.name
    tokens = sum(row["tokens"] for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    cpu = next(
        (
            line.split(": ")[1].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    text = f"""
## {datetime.date.today()}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}

`python -m pretrain train {args.workdir.name} --workdir {args.workdir}`: {step:,} steps, {tokens / 1e6:.1f} M tokens, {seconds / 60:.0f} minutes
of steps (median {np.median([row["tokens_per_second"] for row in rows]):,.0f} tokens/s). Held-out part: {scores["rows"]:,} rows,
{scores["targets"]:,.0f} targets. {args.note}

| held out | loss (nats) | perplexity | accuracy |
|---|---|---|---|
| unigram baseline | {loss:.3f} | {perplexity:.1f} | {accuracy:.2%} |
| {args.workdir.name} | {scores[name]:.3f} | {scores["perplexity"]:.1f} | {scores[f"{name}_accuracy"]:.2%} |

![loss]({args.workdir.name}/loss.png)
![accuracy]({args.workdir.name}/accuracy.png)
"""
    path = RESULTS / f"{args.workdir.name}.md"
    path.parent.mkdir(exist_ok=True)
    with open(path, "a") as file:
        file.write(text if path.stat().st_size else f"# What {args.workdir.name} learned\n{text}")
    report([args.workdir], RESULTS / args.workdir.name, CURVES[:2])
    print(text)


if __name__ == "__main__":
    main()
