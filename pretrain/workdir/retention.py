"""Retention of checkpoints: which of them stay; all others are deleted.

The newest stay, one every so many steps, the best, one for each number of `checkpoint.words`, and
what the user has pinned. A step is pinned by its number in the file `pinned` of the workdir, before
or after it is saved:

    echo 30000 >> WORKDIR/pinned

A command that reads a checkpoint pins its step while it reads (reader_pins.py).

Orbax calls this policy at each save, and deletes checkpoints once the new one is committed. Damaged
checkpoints are in `damaged/` by then, so the newest one here is the newest sound one.
"""

import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from pretrain.settings.sections import EMA_SCORE, Checkpoint
from pretrain.workdir.reader_pins import list_pinned_steps

NAME = "pinned"
Scores = Mapping[str, float]  # {name of a held-out score: value}


def select_steps(
    steps: Sequence[int], rule: Checkpoint, pinned: Iterable[int], scores: Mapping[int, Scores]
) -> set[int]:
    """Return the steps that stay.

    Args:
      pinned: the steps that the user or a reader has pinned.
      scores: the held-out scores of each step; they decide which is the best, see `find_best_step`.
    """
    selected = set(sorted(steps)[-rule.keep :]) | (set(steps) & set(pinned))
    if rule.keep_every:
        selected |= {step for step in steps if step % rule.keep_every == 0}
    best_step = find_best_step({step: scores.get(step, {}) for step in steps}, rule.best)
    return selected if best_step is None else selected | {best_step}


def find_best_step(scores: Mapping[int, Scores], name: str) -> int | None:
    """Return the step with the best finite score of a name; None if there is no finite one.

    The lowest loss is the best, and the highest value of any other metric. Of equal scores, the
    newest step is the best.
    """
    costs = [
        (find_cost(name, step_scores.get(name, math.nan)), -step)
        for step, step_scores in scores.items()
    ]
    costs = [pair for pair in costs if math.isfinite(pair[0])]
    return -min(costs)[1] if costs else None


def find_cost(name: str, score: float) -> float:
    """Return a cost that is lower for a better score: a loss itself, or the negative of a metric.

    The cost of a score that is not finite is infinite. A score of the parameters' moving average,
    `ema/NAME`, is better where NAME is.
    """
    if not math.isfinite(score):
        return math.inf
    return score if name.removeprefix(EMA_SCORE) == "loss" else -score


def read_pins(path: epath.Path) -> set[int]:
    """Return the steps in a file of numbers; the empty set if there is no file.

    Raises ValueError, which names the file, if the file contains anything else.
    """
    numbers = re.split(r"[\s,]+", path.read_text().strip()) if path.exists() else []
    try:
        return {int(number) for number in numbers if number}
    except ValueError as error:
        raise ValueError(f"{path} must contain numbers of steps, one a line ({error})") from error


class Retention:
    """A preservation policy of Orbax for one workdir.

    Process 0 decides for all, because the user may be writing to the file `pinned`.
    """

    def __init__(self, rule: Checkpoint, workdir: epath.Path) -> None:
        self.rule, self.workdir, self.path = rule, workdir, workdir / NAME
        self.scores: dict[int, Scores] = {}
        self.word_steps: set[int] = set()  # of checkpoint.words

    def update_scores(self, steps: Collection[int], scores_of: Callable[[int], Scores]) -> None:
        """Look up the scores of existing steps, which an earlier start may have saved."""
        if self.rule.best:
            self.scores = {
                step: self.scores[step] if step in self.scores else scores_of(step)
                for step in steps
            }

    def record_scores(self, step: int, scores: Scores) -> None:
        """Record the scores of a step that is about to be saved."""
        if self.rule.best:
            self.scores[step] = scores

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any = None) -> list[bool]:
        """Return for each of Orbax's descriptions of a checkpoint whether the checkpoint stays."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        try:
            pinned = read_pins(self.path) | list_pinned_steps(self.workdir) | self.word_steps
            selected = select_steps(steps, self.rule, pinned, self.scores)
        except (ValueError, OSError) as error:  # which steps are pinned is not known
            print(f"no checkpoint is deleted: {error}", file=sys.stderr)
            selected = set(steps)
        mask = np.isin(steps, list(selected))
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            mask = np.asarray(multihost_utils.broadcast_one_to_all(mask))
        return [bool(stays) for stays in mask]
