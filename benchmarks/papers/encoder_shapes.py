"""Encoders of equal size and different shape, pretrained on the same rows for equal time.

    python -m benchmarks.papers.encoder_shapes --corpora CORPORA --folder FOLDER --minutes 6 --page

BERT's shape has learned positions, biases, a GELU's MLP and norms after the first residual; Ettin's
has rotary positions, no biases, a gated MLP, and global attention in every third layer. Both have
about 5 million parameters and read the same masked rows of the books of CORPORA.

Time is equal by rates: the models first train in turns of some seconds, so that other programs slow
all of them alike, and the steps of each are `--minutes` times its steps a minute. The last step is
scored: no score selects a step. FOLDER has the store and the workdirs, so that a second command
continues what was stopped.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax

from benchmarks.cached_results import require_settings
from benchmarks.equal_time import EqualTime
from benchmarks.harness import (
    duration,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    require_paths,
    some_of,
)
from benchmarks.papers.ladder import VOCAB, prepare_books
from benchmarks.program_turns import read_heldout_loss
from benchmarks.results_pages import add_result

NAME = "encoder_shapes"
STEP_TOKENS, LENGTH = 1_024, 32  # tokens of a step and of a row
REFERENCE = "bert"


class Shape(NamedTuple):
    """An encoder of the table.

    Attributes:
      name: in the table.
      config: configuration that the sizes change.
      sizes: overrides of the configuration.
    """

    name: str
    config: str
    sizes: tuple[str, ...]


SHAPES = {
    "bert": Shape("BERT", "bert_mini", ("model.depth=8", "model.mlp=768")),
    "ettin": Shape(
        "Ettin", "modernbert_tiny", ("model.depth=11", "model.mlp=288", "model.window=16")
    ),
}


def list_words(
    folder: pathlib.Path, minutes: float, rate: float, name: str, steps: int
) -> list[str]:
    """Return the configuration and the overrides of a shape's pretraining."""
    return [
        SHAPES[name].config,
        *SHAPES[name].sizes,
        f"model.vocab={VOCAB}",
        "model.width=192",
        "model.num_heads=3",
        f"model.length={LENGTH}",
        f"data.store={folder / 'store'}",
        f"data.objective.length={LENGTH}",
        f"data.objective.max_predictions={LENGTH * 3 // 10 + 1}",
        "data.objective.mask_rate=0.3",
        "data.objective.rows=windows",
        f"data.batch_size={STEP_TOKENS // LENGTH}",
        f"optimizer.learning_rate={rate}",
        "optimizer.beta2=0.98",
        "optimizer.warmup_steps=200",
        "optimizer.decay=linear",
        "optimizer.end_lr_ratio=0",
        "train.compute_dtype=float32",
        "train.stop_at_step=0",
        f"train.steps={steps}",
        f"evaluate.every={steps}",
        f"checkpoint.every={max(1, min(steps, round(steps / minutes)))}",
    ]


def format_rows(losses: Mapping[str, Sequence[float]], steps: Mapping[str, int]) -> list[str]:
    """Return the table of the held-out losses, in nats of a masked token."""
    lines = [
        "| shape | steps | tokens | nats, each seed | mean ± deviation |",
        "|---|---|---|---|---|",
    ]
    for name, found in losses.items():
        spread = f" ± {statistics.stdev(found):.3f}" if len(found) > 1 else ""
        each = ", ".join(f"{loss:.3f}" for loss in found)
        tokens = f"{steps[name] * STEP_TOKENS / 1e6:.2f} M"
        mean = f"{statistics.fmean(found):.3f}{spread}"
        lines.append(f"| {SHAPES[name].name} | {steps[name]:,} | {tokens} | {each} | {mean} |")
    return lines


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="folder of the books")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of runs and the store")
    parser.add_argument("--minutes", type=duration, default=6, help="of each pretraining")
    parser.add_argument("--measure", type=duration, default=60, help="seconds to measure speeds")
    parser.add_argument("--shapes", type=some_of(SHAPES), default=list(SHAPES))
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate of each shape")
    parser.add_argument("--page", action="store_true", help="add the table to the page")
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books)
    load_at_start, folder = os.getloadavg()[0], args.folder.absolute()
    words = partial(list_words, folder, args.minutes, args.rate)
    trainings = EqualTime(folder, words, REFERENCE)
    with report_errors(parser):
        settings = {"minutes": args.minutes, "rate": args.rate}
        require_settings(folder / "settings.json", settings, (folder / "steps.json").exists())
        prepare_books(books, folder, "store")
        steps = trainings.find_steps(args.shapes, args.minutes, args.measure)
    losses: dict[str, list[float]] = {name: [] for name in args.shapes}
    for seed in range(args.seeds):
        for name in args.shapes:
            workdir = folder / f"{name}_{seed}"
            trainings.pretrain_model(name, workdir, steps[name], f"train.seed={seed}")
            losses[name].append(read_heldout_loss(workdir))
            print(f"{name}, seed {seed}: {losses[name][-1]:.3f} nats", flush=True)
    lines = format_rows(losses, steps)
    print("\n".join(lines))
    if args.page:
        note = (
            f"`{format_command()}`: held-out loss of a masked token in nats after {args.minutes:g} "
            f"minutes at the measured rates; learning rate {args.rate}. A step has "
            f"{STEP_TOKENS:,} tokens in rows of {LENGTH}."
        )
        title = format_title(load_at_start, f"JAX {jax.__version__}")
        add_result(NAME, [title, "", note, "", *lines], "Shapes of encoders")


if __name__ == "__main__":
    main()
