"""Steps and time of optimizers to AdamW's held-out loss: BERT-mini on books, each tuned alike.

    python -m benchmarks.papers.optimizers --corpora CORPORA --folder FOLDER --steps 1500 --page

The peak of the learning rate is doubled or halved, with seed 0, until the best is between two that
are worse. The best trains with further seeds, and in shorter runs, whose decay ends with them: they
say after how many steps an optimizer has the loss that AdamW has after all of them. Its time is
that share times the ratio of the steps' times, which are measured in turns.

FOLDER has the store and the workdirs, so that a second command continues what was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import statistics
from collections.abc import Callable, Mapping, Sequence
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

NAME = "optimizers"
REFERENCE = "adamw"
SHARES = (0.5, 0.625, 0.75, 0.875)  # steps of the shorter runs, as a share of all
MAX_DOUBLINGS = 4  # farthest from where a search begins


class Optimizer(NamedTuple):
    """An optimizer of the table.

    Attributes:
      name: in the table.
      rate: peak of the learning rate where its search begins.
      words: other overrides.
    """

    name: str
    rate: float
    words: tuple[str, ...] = ()


OPTIMIZERS = {
    REFERENCE: Optimizer("AdamW", 1e-3, ("optimizer.beta2=0.98",)),
    "stableadamw": Optimizer("StableAdamW", 1e-3),
    "lion": Optimizer("Lion", 1e-4),
    "muon": Optimizer("Muon", 1e-3, ("optimizer.beta2=0.98",)),
}


class Score(NamedTuple):
    """What an optimizer reached: `losses` in nats after all steps, by seed, and (steps, mean loss)
    of shorter runs.
    """

    rate: float
    losses: list[float]
    shorter: list[tuple[int, float]]


def list_mini_words(folder: pathlib.Path, steps: int) -> list[str]:
    """Return the overrides with which BERT-mini reads the books of a folder for some steps."""
    return [
        f"model.vocab={VOCAB}",
        f"data.store={folder / 'store'}",
        "train.stop_at_step=0",
        f"train.steps={steps}",
        f"evaluate.every={steps}",
        "evaluate.samples=0",
        f"checkpoint.every={min(steps, 500)}",
    ]


def list_words(folder: pathlib.Path, name: str, steps: int) -> list[str]:
    """Return the configuration and the overrides of an optimizer, at the rate of its search."""
    optimizer = OPTIMIZERS[name]
    return [
        "bert_mini",
        f"optimizer={name}",
        f"optimizer.learning_rate={optimizer.rate:g}",
        f"optimizer.warmup_steps={max(1, steps // 10)}",
        *optimizer.words,
        *list_mini_words(folder, steps),
    ]


def search_rate(start: float, score: Callable[[float], float]) -> float:
    """Return the rate start * 2 ** i with the least score, next to two that are worse.

    A rate at MAX_DOUBLINGS from the start is the last that is tried.
    """
    scores = {power: score(start * 2.0**power) for power in (-1, 0, 1)}
    while True:
        best = min(scores, key=scores.__getitem__)
        missing = {best - 1, best + 1} - scores.keys()
        if not missing or abs(best) == MAX_DOUBLINGS:
            return start * 2.0**best
        scores |= {power: score(start * 2.0**power) for power in missing}


def find_steps(points: Sequence[tuple[int, float]], loss: float) -> float | None:
    """Return the number of steps at which the line through points has fallen to a loss.

    points: (steps, loss) of runs, by steps. None: the first has it already, or no run has it.
    """
    for (steps, above), (later, below) in itertools.pairwise(points):
        if above > loss >= below:
            return steps + (later - steps) * (above - loss) / (above - below)
    return None


def measure_optimizer(
    trainings: EqualTime, name: str, steps: int, seeds: int, shares: Sequence[float]
) -> Score:
    """Return the tuned score of an optimizer, after the trainings that are missing."""

    def train(rate: float, length: int, seed: int) -> float:
        workdir = trainings.folder / f"{name}_{rate:g}_{length}_{seed}"
        words = [f"optimizer.learning_rate={rate:g}", f"train.seed={seed}"]
        trainings.pretrain_model(name, workdir, length, *words)
        loss = read_heldout_loss(workdir)
        print(f"{name}, rate {rate:g}, {length:,} steps, seed {seed}: {loss:.3f}", flush=True)
        return loss

    rate = search_rate(OPTIMIZERS[name].rate, lambda rate: train(rate, steps, 0))
    losses = [train(rate, steps, seed) for seed in range(seeds)]
    shorter = []
    for length in (round(steps * share) for share in shares):
        found = statistics.fmean(train(rate, length, seed) for seed in range(seeds))
        shorter.append((length, found))
    return Score(rate, losses, shorter)


def read_rates(trainings: EqualTime, names: Sequence[str], measure: float) -> dict[str, float]:
    """Return the steps a second of each optimizer, measured in turns once for a folder."""
    path = trainings.folder / "rates.json"
    if not path.exists():
        path.write_text(json.dumps(trainings.measure_rates(list(names), measure)))
    return json.loads(path.read_text())


def format_rows(
    scores: Mapping[str, Score], steps: int, rates: Mapping[str, float], loss: float
) -> list[str]:
    """Return the table; `loss` is the reference's, to which steps and time are counted."""
    lines = [
        "| optimizer | peak rate | nats, each seed | mean | steps to AdamW's loss "
        "| time of a step | time to AdamW's loss |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, score in scores.items():
        mean, slower = statistics.fmean(score.losses), rates[REFERENCE] / rates[name]
        needed = find_steps([*score.shorter, (steps, mean)], loss)
        if name == REFERENCE:
            share, time = "1", "1"
        elif needed is None:
            bound = "more than" if mean > loss else "at most"
            least = 1 if mean > loss else score.shorter[0][0] / steps
            share, time = f"{bound} {least:.2f}", f"{bound} {least * slower:.2f}"
        else:
            share, time = f"{needed / steps:.2f}", f"{needed / steps * slower:.2f}"
        each = ", ".join(f"{one:.3f}" for one in score.losses)
        lines.append(
            f"| {OPTIMIZERS[name].name} | {score.rate:g} | {each} | {mean:.3f} | {share} "
            f"| {slower:.2f} | {time} |"
        )
    return lines


def main() -> None:
    """Train what is not finished and add the table to the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--corpora", type=pathlib.Path, required=True, help="folder of the books")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of runs and the store")
    parser.add_argument("--steps", type=int_at_least(16), default=1_500, help="of a whole run")
    parser.add_argument("--measure", type=duration, default=60, help="seconds to measure speeds")
    parser.add_argument("--optimizers", type=some_of(OPTIMIZERS), default=list(OPTIMIZERS))
    parser.add_argument("--seeds", type=int_at_least(1), default=3)
    parser.add_argument("--page", action="store_true", help="add the table to the page")
    args = parser.parse_args()
    books = args.corpora / "books" / "train"
    require_paths(parser, "--corpora", books)
    load_at_start, folder = os.getloadavg()[0], args.folder.absolute()
    trainings = EqualTime(folder, partial(list_words, folder), REFERENCE)
    names = list(dict.fromkeys([REFERENCE, *args.optimizers]))
    with report_errors(parser):
        settings = folder / "settings.json"
        require_settings(settings, {"steps": args.steps}, (folder / "rates.json").exists())
        prepare_books(books, folder, "store")
    rates = read_rates(trainings, list(OPTIMIZERS), args.measure)
    scores = {}
    for name in names:
        shares = () if name == REFERENCE else SHARES
        scores[name] = measure_optimizer(trainings, name, args.steps, args.seeds, shares)
    loss = statistics.fmean(scores[REFERENCE].losses)
    lines = format_rows(scores, args.steps, rates, loss)
    print("\n".join(lines))
    if args.page:
        note = (
            f"`{format_command()}`: held-out loss of a masked token after {args.steps:,} steps of "
            "64 rows of 16 tokens, a tenth of them warmup, then a linear decay to 0. Steps and "
            "time are shares of AdamW's."
        )
        title = format_title(load_at_start, f"JAX {jax.__version__}")
        add_result(NAME, [title, "", note, "", *lines], "Optimizers")


if __name__ == "__main__":
    main()
