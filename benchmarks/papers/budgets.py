"""One stable run, decayed at several budgets, beside a cosine for each: BERT-mini on books.

    python -m benchmarks.papers.budgets --corpora CORPORA --folder FOLDER --page

The stable run keeps its rate after the warmup. For each budget a branch leaves it after four
fifths of the budget's steps and cools down in the last fifth (`optimizer.decay=wsd`); beside it a
run of as many steps decays by a cosine from the same peak. The last step of every run is scored.

FOLDER has the store and the workdirs, so that a second command continues what was stopped.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from functools import partial

import jax

from benchmarks.cached_results import require_settings
from benchmarks.equal_time import EqualTime
from benchmarks.harness import (
    format_command,
    format_title,
    int_at_least,
    multiple_of,
    report_errors,
    require_paths,
)
from benchmarks.papers.ladder import prepare_books
from benchmarks.papers.optimizers import OPTIMIZERS, list_mini_words
from benchmarks.program_turns import read_heldout_loss
from benchmarks.results_pages import add_result

NAME = "budgets"
NUM_BUDGETS = 3  # each twice the one before
COOLDOWN = 5  # a fifth of the budget's steps
WAYS = ("cosine", "branch")


def list_words(
    folder: pathlib.Path, optimizer: str, rate: float, first: int, decay: str, steps: int
) -> list[str]:
    """Return the configuration and the overrides of a run; `first` is the least budget."""
    return [
        "bert_mini",
        f"optimizer={optimizer}",
        f"optimizer.learning_rate={rate:g}",
        *OPTIMIZERS[optimizer].words,
        f"optimizer.decay={decay}",
        f"optimizer.warmup_steps={first // 10}",
        *list_mini_words(folder, steps),
        f"checkpoint.every={first // COOLDOWN}",
        f"checkpoint.keep_every={first // COOLDOWN}",
    ]


def train_seed(trainings: EqualTime, budgets: Sequence[int], seed: int) -> dict[str, list[float]]:
    """Return the held-out losses of a seed: {way: loss of each budget}."""
    folder, choose_seed = trainings.folder, f"train.seed={seed}"
    stable = folder / f"stable_{seed}"
    length = budgets[-1] - budgets[-1] // COOLDOWN
    trainings.pretrain_model("constant", stable, length, choose_seed)
    losses: dict[str, list[float]] = {way: [] for way in WAYS}
    for budget in budgets:
        cooldown = budget // COOLDOWN
        branch, cosine = (folder / f"{way}_{budget}_{seed}" for way in ("branch", "cosine"))
        start = ["--from", str(stable), "--step", str(budget - cooldown), "--with-optimizer"]
        cool = f"optimizer.cooldown_steps={cooldown}"
        trainings.pretrain_model("wsd", branch, budget, choose_seed, cool, *start)
        trainings.pretrain_model("cosine", cosine, budget, choose_seed)
        for way, workdir in zip(WAYS, (cosine, branch), strict=True):
            losses[way].append(read_heldout_loss(workdir))
            print(f"{way}, {budget:,} steps, seed {seed}: {losses[way][-1]:.3f}", flush=True)
    return losses


def format_rows(
    budgets: Sequence[int], seeds: Sequence[Mapping[str, Sequence[float]]]
) -> list[str]:
    """Return the table of the held-out losses, in nats of a masked token."""
    lines = [
        "| steps | cosine: nats, each seed | mean | branch: nats, each seed | mean | difference |",
        "|---|---|---|---|---|---|",
    ]
    for i, budget in enumerate(budgets):
        cells, means = [f"{budget:,}"], []
        for way in WAYS:
            losses = [seed[way][i] for seed in seeds]
            means.append(statistics.fmean(losses))
            cells += [", ".join(f"{loss:.3f}" for loss in losses), f"{means[-1]:.3f}"]
        lines.append("| " + " | ".join([*cells, f"{means[1] - means[0]:+.3f}"]) + " |")
    return lines


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="folder of the books")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of runs and the store")
    parser.add_argument(
        "--first",
        type=multiple_of(2 * COOLDOWN, 2 * COOLDOWN),
        default=500,
        help="steps of the least budget; the others are 2 and 4 times as long",
    )
    parser.add_argument("--optimizer", choices=list(OPTIMIZERS), default="adamw")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak of the learning rate")
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--page", action="store_true", help="add the table to the page")
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books)
    load_at_start, folder = os.getloadavg()[0], args.folder.absolute()
    trainings = EqualTime(
        folder, partial(list_words, folder, args.optimizer, args.rate, args.first), "cosine"
    )
    with report_errors(parser):
        settings = {"optimizer": args.optimizer, "first": args.first, "rate": args.rate}
        require_settings(folder / "settings.json", settings, any(folder.glob("stable_*")))
        prepare_books(books, folder, "store")
    budgets = [args.first * 2**i for i in range(NUM_BUDGETS)]
    losses = [train_seed(trainings, budgets, seed) for seed in range(args.seeds)]
    lines = format_rows(budgets, losses)
    print("\n".join(lines))
    if args.page:
        note = (
            f"`{format_command()}`: held-out loss of a masked token, by "
            f"{OPTIMIZERS[args.optimizer].name}. A step has 64 rows of 16 tokens; the peak of all "
            f"runs is {args.rate:g}, with {args.first // 10:,} steps of "
            f"warmup. Branches leave one run with a constant rate, and cool down by 1 - sqrt in "
            f"the last {1 / COOLDOWN:.0%} of their steps."
        )
        title = format_title(load_at_start, f"JAX {jax.__version__}")
        add_result(NAME, [title, "", note, "", *lines], "Budgets")


if __name__ == "__main__":
    main()
