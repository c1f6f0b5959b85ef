"""Time Cloze and `transformers.Trainer` from their start to held-out losses: BERT-mini on books.

    python -m benchmarks.speed.time_to_loss --store runs/books [--limit 600] [--every 100]
      [--ways cloze,cloze_bf16,trainer,trainer_bf16] [data.batch_size=32 ...]

Both use the same tokens, model, batch size and schedule (configs/bert_mini.py: 64 rows of 16, 30 %
of the tokens masked; overrides change them for both). Cloze is `python -m pretrain train` with the
environment variables of launch.sh and its own compilation cache, empty at first; `cloze_bf16` has
the overrides that docs/speed.md recommends for a CPU. The peer is a program like `run_mlm.py` in a
plain environment: ids in rows of the same length, `DataCollatorForLanguageModeling`, `Trainer`;
`trainer_bf16` has `bf16=True`. All programs score the same held-out batches every `--every` steps,
and the time of scoring counts.

They take turns of `--slice` seconds; a program is stopped (SIGSTOP) between its turns, and its
clock with it. `--limit` is in seconds of each program's own clock. A dated section is appended to
benchmarks/results/time_to_loss.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import (
    MALLOC_ENVIRONMENT,
    ROOT,
    duration,
    format_command,
    format_title,
    int_at_least,
    report_errors,
    some_of,
)
from benchmarks.peer_environment import find_peers_python
from benchmarks.program_turns import HeldoutLoss, ProgramTurn, take_turns
from benchmarks.results_pages import add_result
from data.pipeline import Stream
from data.store.reader import Store
from pretrain.config import load
from pretrain.convert.read_write import find_converter

# The losses of the table's rows; the loss of unigram frequencies is 6.6.
LOSSES = [6.5 - 0.25 * i for i in range(11)]
# program: (whether it is Cloze, its additional arguments)
WAYS = {
    "cloze": (True, []),
    "cloze_bf16": (True, ["model.scan=false", "train.compute_dtype=bfloat16"]),
    "trainer": (False, []),
    "trainer_bf16": (False, ["bf16"]),
}
RATIOS = [("trainer", "cloze"), ("trainer_bf16", "cloze_bf16"), ("trainer", "cloze_bf16")]


def write_inputs(
    folder: pathlib.Path, store_path: str | os.PathLike[str], overrides: Sequence[str]
) -> None:
    """Write the peer's inputs to a folder.

    They are the ids of the training split, the held-out batches that `train` scores, and the
    model's configuration.

    Args:
      overrides: of the configuration.
    """
    run = load("bert_mini", list(overrides))
    store = Store.open(store_path)
    batches: Any = list(
        Stream(store, run.data, split="heldout", seed=run.train.seed).iterate_evaluation_batches()
    )
    arrays: dict[str, Any] = {
        key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]
    }
    np.savez(folder / "heldout.npz", **arrays)
    np.save(
        folder / "ids.npy",
        np.asarray(Stream(store, run.data, split="train", seed=run.train.seed).split.tokens),
    )
    settings = find_converter(run.model).to_hf_config(run.model, store.vocabulary)
    settings |= {name: getattr(store.vocabulary, name) for name in ("cls", "sep", "mask")}
    optimizer: Any = run.optimizer
    objective: Any = run.data.objective
    settings["arguments"] = {
        "per_device_train_batch_size": run.data.batch_size,
        "max_steps": run.train.steps,
        "learning_rate": optimizer.learning_rate,
        "warmup_steps": optimizer.warmup_steps,
        "adam_beta1": optimizer.beta1,
        "adam_beta2": optimizer.beta2,
        "adam_epsilon": optimizer.epsilon,
        "weight_decay": optimizer.weight_decay,
        "max_grad_norm": optimizer.max_grad_norm,
    }
    settings["rate"], settings["length_of_rows"] = objective.mask_rate, objective.length
    (folder / "settings.json").write_text(json.dumps(settings))


def find_first(scores: Sequence[HeldoutLoss], loss: float) -> tuple[float, int] | None:
    """Return (own seconds, step) at which a loss was first reached, or None."""
    return next(((now, step) for now, step, value in scores if value <= loss), None)


def list_ratios(scores_by_program: Mapping[str, Sequence[HeldoutLoss]]) -> list[tuple[str, str]]:
    """Return the pairs of RATIOS of which both programs ran."""
    return [pair for pair in RATIOS if scores_by_program.keys() >= set(pair)]


def format_columns(scores_by_program: Mapping[str, Sequence[HeldoutLoss]]) -> list[str]:
    """Return the header of the table."""
    return [
        "held-out loss",
        *(f"{name}, s (step)" for name in scores_by_program),
        *(f"{theirs} / {ours}" for theirs, ours in list_ratios(scores_by_program)),
    ]


def format_rows(
    scores_by_program: Mapping[str, Sequence[HeldoutLoss]], losses: Sequence[float]
) -> Iterator[str]:
    """Yield a row for each loss that any program has reached.

    Args:
      scores_by_program: {program: its losses}.
    """
    for loss in losses:
        firsts = {name: find_first(scores, loss) for name, scores in scores_by_program.items()}
        if not any(firsts.values()):
            continue
        cells = [
            f"{loss:.2f}",
            *(
                f"{first[0]:.0f} ({first[1]})" if first else "not reached"
                for first in firsts.values()
            ),
        ]
        pairs = [(firsts[theirs], firsts[ours]) for theirs, ours in list_ratios(scores_by_program)]
        cells += [
            f"{theirs[0] / ours[0]:.2f}" if theirs and ours else "-" for theirs, ours in pairs
        ]
        yield f"| {' | '.join(cells)} |"


def start_program(
    way: str, folder: pathlib.Path, overrides: Sequence[str], every: int
) -> ProgramTurn:
    """Start a program.

    Args:
      overrides: of the configuration.
      every: steps between two scorings.
    """
    is_cloze, more = WAYS[way]
    log = folder / f"{way}.log"
    if not is_cloze:
        peer = [
            find_peers_python(),
            ROOT / "benchmarks" / "speed" / "time_to_loss_torch.py",
            folder,
            str(every),
            folder / f"{way}.jsonl",
            *more,
        ]
        return ProgramTurn(peer, folder / f"{way}.jsonl", "heldout_loss", {}, log)
    ours = [
        sys.executable,
        "-m",
        "pretrain",
        "train",
        "bert_mini",
        "--workdir",
        folder / way,
        *overrides,
        *more,
    ]
    fresh = {"JAX_COMPILATION_CACHE_DIR": str(folder / f"{way}_cache"), "JAX_PLATFORMS": "cpu"}
    return ProgramTurn(
        ours, folder / way / "metrics.jsonl", "heldout_loss", MALLOC_ENVIRONMENT | fresh, log
    )


def run_programs(
    args: argparse.Namespace, folder: pathlib.Path, overrides: Sequence[str]
) -> dict[str, list[HeldoutLoss]]:
    """Run the programs in turns until the limit and return {program: its losses}."""
    starts = {way: partial(start_program, way, folder, overrides, args.every) for way in args.ways}
    return take_turns(starts, args.limit, args.slice)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--store", type=pathlib.Path, default="runs/books")
    parser.add_argument("--limit", type=duration, default=600)
    parser.add_argument("--every", type=int_at_least(1), default=100)
    parser.add_argument("--slice", type=duration, default=15)
    parser.add_argument(
        "--ways", type=some_of(WAYS), default=list(WAYS), help=f"of {','.join(WAYS)}"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="overrides of the configuration, for both"
    )
    args = parser.parse_args()
    load_before = os.getloadavg()[0]
    overrides = [
        f"data.store={args.store}",
        f"evaluate.every={args.every}",
        "train.stop_at_step=0",
        "checkpoint.every=100000",
        *args.overrides,
    ]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with report_errors(parser):
            write_inputs(folder, args.store, overrides)
            if not all(WAYS[way][0] for way in args.ways):
                find_peers_python()
        scores = run_programs(args, folder, overrides)
    last = ", ".join(
        f"{name} {now:.0f} s, step {step}, {loss:.3f}"
        for name, program_scores in scores.items()
        for now, step, loss in program_scores[-1:]
    )
    note = (
        f"`{format_command()}`: seconds of each program's own clock, at most {args.limit:g}, from "
        "its start to the first held-out loss at or below the first column, and the step; "
        "scored every "
        f"{args.every} steps. The last scores: {last}."
    )
    head = format_columns(scores)
    add_result(
        "time_to_loss",
        [
            format_title(load_before),
            "",
            note,
            "",
            f"| {' | '.join(head)} |",
            "|---" * len(head) + "|",
            *format_rows(scores, LOSSES),
        ],
    )


if __name__ == "__main__":
    main()
