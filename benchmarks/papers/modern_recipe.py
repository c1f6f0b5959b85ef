"""The phases of bert_mini_modern with BERT's and ModernBERT's shape, and by AdamW and Muon.

    python -m benchmarks.papers.modern_recipe --corpora CORPORA --folder FOLDER --steps 1000 --page

Each of the four combinations trains on the books of CORPORA with rows of 16 at a constant rate, and
then half as many steps with rows of 64, in which the rate decays to 0. The peaks are those that the
search of `benchmarks.papers.optimizers` found for BERT-mini. The last step is scored, on rows of
64 tokens.

FOLDER has the store and the workdirs, so that a second command continues what was stopped.
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
from benchmarks.papers.optimizers import read_rates
from benchmarks.program_turns import read_heldout_loss
from benchmarks.results_pages import add_result
from configs import bert_mini_modern

NAME = "modern_recipe"
LONG = bert_mini_modern.config().phases[1].overrides


class ShapedRecipe(NamedTuple):
    """A combination of the table.

    Attributes:
      name: in the table.
      config: configuration that has the shape.
      optimizer: its name.
      rate: peak of the learning rate.
    """

    name: str
    config: str
    optimizer: str
    rate: float


RECIPES = {
    "bert_adamw": ShapedRecipe("BERT, AdamW", "bert_mini", "adamw", 5e-4),
    "bert_muon": ShapedRecipe("BERT, Muon", "bert_mini", "muon", 2e-3),
    "modern_adamw": ShapedRecipe("ModernBERT, AdamW", "bert_mini_modern", "adamw", 5e-4),
    "modern_muon": ShapedRecipe("ModernBERT, Muon", "bert_mini_modern", "muon", 2e-3),
}
REFERENCE = "bert_adamw"


def list_words(folder: pathlib.Path, short: int, name: str, steps: int) -> list[str]:
    """Return the configuration and the overrides of a recipe.

    short: steps of the rows of 16; those of the rows of 64 are `steps` less these.
    """
    recipe = RECIPES[name]
    return [
        recipe.config,
        f"model.vocab={VOCAB}",
        f"data.store={folder / 'store'}",
        f"optimizer={recipe.optimizer}",
        f"optimizer.learning_rate={recipe.rate:g}",
        f"optimizer.warmup_steps={max(1, short // 10)}",
        "optimizer.beta2=0.98",
        "optimizer.decay=constant",
        "train.stop_at_step=0",
        f"evaluate.every={steps}",
        "evaluate.samples=0",
        f"phases.short.steps={short}",
        f"phases.long.steps={steps - short}",
        *(f"phases.long.{word}" for word in LONG),
    ]


def format_rows(losses: Mapping[str, Sequence[float]], rates: Mapping[str, float]) -> list[str]:
    """Return the table: losses in nats of each seed, and the time of a step of rows of 16."""
    lines = [
        "| shape, optimizer | nats, each seed | mean | time of a short step |",
        "|---|---|---|---|",
    ]
    for name, found in losses.items():
        each = ", ".join(f"{loss:.3f}" for loss in found)
        slower = rates[REFERENCE] / rates[name]
        lines.append(
            f"| {RECIPES[name].name} | {each} | {statistics.fmean(found):.3f} | {slower:.2f} |"
        )
    return lines


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="folder of the books")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of runs and the store")
    parser.add_argument("--steps", type=int_at_least(16), default=1_000, help="of the short rows")
    parser.add_argument("--measure", type=duration, default=60, help="seconds to measure speeds")
    parser.add_argument("--recipes", type=some_of(RECIPES), default=list(RECIPES))
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--page", action="store_true", help="add the table to the page")
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books)
    load_at_start, folder = os.getloadavg()[0], args.folder.absolute()
    trainings = EqualTime(folder, partial(list_words, folder, args.steps), REFERENCE)
    with report_errors(parser):
        settings = folder / "settings.json"
        require_settings(settings, {"steps": args.steps}, (folder / "rates.json").exists())
        prepare_books(books, folder, "store")
    rates = read_rates(trainings, list(RECIPES), args.measure)
    steps = args.steps + args.steps // 2
    losses: dict[str, list[float]] = {name: [] for name in args.recipes}
    for seed in range(args.seeds):
        for name in args.recipes:
            workdir = folder / f"{name}_{seed}"
            trainings.pretrain_model(name, workdir, steps, f"train.seed={seed}")
            losses[name].append(read_heldout_loss(workdir))
            print(f"{name}, seed {seed}: {losses[name][-1]:.3f} nats", flush=True)
    lines = format_rows(losses, rates)
    print("\n".join(lines))
    if args.page:
        note = (
            f"`{format_command()}`: held-out loss of a masked token in nats, in rows of 64, after "
            f"{args.steps:,} steps of 64 rows of 16 tokens and {args.steps // 2:,} steps of 16 "
            "rows of 64."
        )
        title = format_title(load_at_start, f"JAX {jax.__version__}")
        add_result(NAME, [title, "", note, "", *lines], "The recipe of bert_mini_modern")


if __name__ == "__main__":
    main()
