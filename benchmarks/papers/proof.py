"""Compare a run's held-out scores with a unigram baseline, the best model without context.

    python benchmarks/papers/proof.py runs/bert_mini [--batches 500] [--note TEXT]

The baseline is the frequency of each target, counted on `--batches` training batches with one
added to each count: it always predicts the most frequent token, and its loss is the cross entropy
of the frequencies. Model and baseline are scored on all held-out targets. A dated section is
appended to benchmarks/results/<name of the run>.md, and the curves are drawn next to it.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from benchmarks.harness import get_processor_name, int_at_least, report_errors  # noqa: E402
from benchmarks.results_pages import RESULTS, add_result  # noqa: E402
from data.pipeline import Stream  # noqa: E402
from data.store.reader import Store  # noqa: E402
from pretrain.api.evaluating import evaluate_checkpoint  # noqa: E402
from pretrain.reporting.run_report import write_report  # noqa: E402
from pretrain.workdir import metrics_file  # noqa: E402
from pretrain.workdir.workdir import Workdir  # noqa: E402

if TYPE_CHECKING:
    from pretrain.config import Run


def count_targets(batches: Iterable[Mapping[str, Any]], size: int) -> np.ndarray:
    """Return how often each of `size` ids is a scored target."""
    total = np.zeros(size, np.int64)
    for batch in batches:
        total += np.bincount(batch["labels"][batch["label_weights"] > 0], minlength=size)
    return total


def score_unigram(run: Run, store: Store, batches: int) -> tuple[float, float, float]:
    """Return the baseline's (loss, accuracy, perplexity) on the held-out rows.

    Args:
      batches: number of training batches to count.
    """
    model: Any = run.model
    size = model.vocab
    train = Stream(store, run.data, split="train", seed=run.train.seed)
    train_counts = count_targets((train.build_batch(step) for step in range(batches)), size) + 1
    heldout_counts = count_targets(
        Stream(store, run.data, split="heldout", seed=run.train.seed).iterate_evaluation_batches(),
        size,
    )
    log_probs = np.log(train_counts / train_counts.sum())
    loss = -(heldout_counts * log_probs).sum() / heldout_counts.sum()
    accuracy = heldout_counts[train_counts.argmax()] / heldout_counts.sum()
    return loss, accuracy, np.exp(loss)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir", type=pathlib.Path)
    parser.add_argument("--batches", type=int_at_least(1), default=500)
    parser.add_argument(
        "--note",
        default="",
        help="a remark for the page, such as other load on the machine",
    )
    args = parser.parse_args()
    with report_errors(parser):
        run = Workdir.open(args.workdir).run
        store = Store.open(run.data.store)
    rows = metrics_file.read_metrics(args.workdir / "metrics.jsonl")
    step, _, scores = evaluate_checkpoint(args.workdir)
    loss, accuracy, perplexity = score_unigram(run, store, args.batches)
    name = run.data.objective.name
    tokens = sum(row["tokens"] for row in rows)
    seconds = sum(row["seconds"] for row in rows)
    median_rate = np.median([row["tokens_per_second"] for row in rows])
    run_accuracy = scores[f"{name}_accuracy"]
    cells = f"{scores[name]:.3f} | {scores['perplexity']:.1f} | {run_accuracy:.2%}"
    machine = (
        f"{datetime.date.today()}, {get_processor_name()}, {len(os.sched_getaffinity(0))} cores, "
    )
    machine += f"Python {platform.python_version()}"
    text = f"""## {machine}

`python -m pretrain train {args.workdir.name} --workdir {args.workdir}`: {step:,} steps,
{tokens / 1e6:.1f} M tokens, {seconds / 60:.0f} minutes of steps (median {median_rate:,.0f}
tokens/s). Held-out rows: {scores["rows"]:,}, with {scores["targets"]:,.0f} targets. {args.note}

| held out | loss (nats) | perplexity | accuracy |
|---|---|---|---|
| unigram baseline | {loss:.3f} | {perplexity:.1f} | {accuracy:.2%} |
| {args.workdir.name} | {cells} |

![loss]({args.workdir.name}/loss.png)
![accuracy]({args.workdir.name}/accuracy.png)
"""
    name = args.workdir.name
    add_result(name, text.splitlines(), f"Held-out scores of {name}")
    (RESULTS / name).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write_report([args.workdir], pathlib.Path(folder) / "report")
        for picture in ("loss.png", "accuracy.png"):
            shutil.copy(pathlib.Path(folder) / "report" / picture, RESULTS / name / picture)


if __name__ == "__main__":
    main()
