"""Compare models for long rows on the bytes of a text: bits per byte after equal time.

    python -m benchmarks.papers.byte_models TEXT ... [--limit 300] [--models dense,reformer]

Each model has 2 layers of width 128 and 4 heads, and reads 4,096 bytes a step. It is trained by
`python -m pretrain train`. The programs take turns of `--slice` seconds; one that waits is stopped
(SIGSTOP), and its clock with it. `--limit` is in seconds of that clock, from the program's start
(the second, so that its functions are compiled) and with its evaluations. Bits per byte are the
held-out loss in bits: of models that read from left to right, the next byte; of the others, the
bytes that are hidden from them. The two are not comparable. A dated section is added to
benchmarks/results/byte_models.md.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    duration,
    format_command,
    format_title,
    int_at_least,
    require_paths,
    some_of,
)
from benchmarks.program_turns import HeldoutLoss, ProgramTurn, run_to_end, take_turns
from benchmarks.results_pages import add_result

NAME = "byte_models"
STEP_BYTES = 4_096
SIZES = ("model.width=128", "model.depth=2", "model.mlp=512", "model.dropout=0.0")
# {layout: ids of its vocabulary without a single merge}
VOCAB = {"gpt2": 257, "roberta": 261}


class RacingModel(NamedTuple):
    """A model of the table.

    Attributes:
      name: in the table.
      config: configuration that the overrides change.
      reads: what it sees of the text when it predicts a byte.
      length: bytes of a row.
      overrides: of the configuration.
      layout: of its vocabulary.
    """

    name: str
    config: str
    reads: str
    length: int
    overrides: tuple[str, ...] = ()
    layout: str = "gpt2"


WINDOWS = (
    *("data.objective.rows=windows", "data.objective.mask_rate=0.15"),
    *("data.objective.max_predictions=320", "model.attention_dropout=0.0"),
)
MODELS = {
    "dense": RacingModel("GPT-2", "gpt_tiny", "its row", 2_048, ("model.attention_dropout=0.0",)),
    "dense_short": RacingModel(
        "GPT-2", "gpt_tiny", "its row", 256, ("model.attention_dropout=0.0",)
    ),
    "transformer_xl": RacingModel(
        "Transformer-XL",
        "transformer_xl_tiny",
        "its row and the 768 bytes before",
        256,
        (
            *("model.clusters=none", "model.head_width=32", "model.memory=768"),
            "model.attention_dropout=0.0",
        ),
    ),
    "sparse_fixed": RacingModel(
        "Sparse Transformer, fixed",
        "sparse_transformer_tiny",
        "its row",
        2_048,
        ("model.stride=64", "model.summary=16"),
    ),
    "sparse_strided": RacingModel(
        "Sparse Transformer, strided",
        "sparse_transformer_tiny",
        "its row",
        2_048,
        ("model.pattern=strided", "model.stride=64"),
    ),
    "reformer": RacingModel(
        "Reformer", "reformer_tiny", "its row", 2_048, ("model.axial_shape=32,64",)
    ),
    "bert": RacingModel("BERT", "bert_tiny", "all but 15 % of its row", 2_048, WINDOWS, "roberta"),
    "linformer": RacingModel(
        "Linformer, k = 128",
        "linformer_tiny",
        "all but 15 % of its row",
        2_048,
        (*WINDOWS, "model.rank=128"),
        "roberta",
    ),
    # Its scores by distance would take 6 GB in rows of 2,048.
    "xlnet": RacingModel(
        "XLNet", "xlnet_tiny", "5 in 6 bytes of its row, and some of the rest", 512, (), "roberta"
    ),
}


def list_overrides(model: RacingModel, folder: pathlib.Path, every: int) -> list[str]:
    """Return all overrides of a model's configuration.

    Args:
      folder: in which `prepare_texts` has written the stores.
      every: steps between two evaluations.
    """
    has_length = model.config not in ("transformer_xl_tiny", "reformer_tiny")
    return [
        *SIZES,
        "model.num_heads=4",
        f"model.vocab={VOCAB[model.layout]}",
        *([f"model.length={model.length}"] if has_length else []),
        f"data.objective.length={model.length}",
        f"data.batch_size={STEP_BYTES // model.length}",
        f"data.store={folder / model.layout}",
        "optimizer.learning_rate=1e-3",
        "optimizer.warmup_steps=100",
        "optimizer.decay=inverse_square_root",
        "train.steps=1000000",
        f"evaluate.every={every}",
        "checkpoint.every=1000000",
        *model.overrides,
    ]


def prepare_texts(texts: Sequence[str], folder: pathlib.Path, layouts: set[str]) -> None:
    """Write a token store of single bytes for each layout."""
    for layout in layouts:
        words = ["--output", folder / layout, "--layout", layout, "--vocab-size", VOCAB[layout]]
        run_to_end([sys.executable, "-m", "pretrain", "prepare", *texts, *words])


def start_training(name: str, folder: pathlib.Path, every: int) -> ProgramTurn:
    """Compile a model's functions in a run of one step, and start its training, stopped."""
    model = MODELS[name]
    environment = MALLOC_ENVIRONMENT | {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PLATFORMS": "cpu",
    }
    train = [sys.executable, "-m", "pretrain", "train", model.config, "--workdir"]
    overrides = list_overrides(model, folder, every)
    run_to_end([*train, folder / f"{name}_first", *overrides, "train.stop_at_step=1"], environment)
    return ProgramTurn(
        [*train, folder / name, *overrides],
        folder / name / "metrics.jsonl",
        "heldout_loss",
        environment,
        folder / f"{name}.log",
    )


def format_table(
    losses: Mapping[str, Sequence[HeldoutLoss]], limit: float, is_causal: bool
) -> list[str]:
    """Return the table of the models that read from left to right, or of the others."""
    head = ["model", "bytes of a row", "reads", "steps", "ms a step", "bits per byte", "at half"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, scores in losses.items():
        model = MODELS[name]
        if (model.layout == "gpt2") != is_causal:
            continue
        if not scores:
            lines.append(f"| {model.name} | {model.length:,} | {model.reads} | not scored | | | |")
            continue
        now, step, loss = scores[-1]
        half = [score for score in scores if score[0] <= limit / 2][-1:]
        cells = [
            model.name,
            f"{model.length:,}",
            model.reads,
            f"{step:,}",
            f"{1000 * now / step:,.0f}",
            f"{loss / math.log(2):.3f}",
            f"{half[0][2] / math.log(2):.3f}" if half else "not scored",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Train the models in turns and add the section to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="of `prepare`")
    parser.add_argument("--limit", type=duration, default=300)
    parser.add_argument("--slice", type=duration, default=20)
    parser.add_argument("--every", type=int_at_least(1), default=50)
    parser.add_argument(
        "--models", type=some_of(MODELS), default=list(MODELS), help=f"of {','.join(MODELS)}"
    )
    args = parser.parse_args()
    require_paths(parser, "TEXT", *map(pathlib.Path, args.texts))
    load_at_start = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare_texts(args.texts, folder, {MODELS[name].layout for name in args.models})
        starts = {name: partial(start_training, name, folder, args.every) for name in args.models}
        losses = take_turns(starts, args.limit, args.slice)
    note = (
        f"`{format_command()}`: held-out bits per byte after {args.limit:g} seconds of each "
        "program's own clock, of which starting and evaluating are a part. 2 layers of width 128, "
        f"{STEP_BYTES:,} bytes a step, AdamW at 1e-3 for all, not tuned; float32; one seed."
    )
    lines = [format_title(load_at_start, f"JAX {jax.__version__}"), "", note, ""]
    for is_causal, title in (
        (True, "The next byte, from left to right:"),
        (False, "Hidden bytes, from both sides:"),
    ):
        if any((MODELS[name].layout == "gpt2") == is_causal for name in args.models):
            lines += [title, "", *format_table(losses, args.limit, is_causal), ""]
    add_result(NAME, lines[:-1], "Models for long rows, on bytes")


if __name__ == "__main__":
    main()
