"""Which checkpoints stay: the newest, every so many steps, the best, and those that a person has pinned; the rest is deleted.

A step is pinned by its number in the file `pinned` of the workdir, before or after it is saved:

    echo 30000 >> WORKDIR/pinned

Orbax asks at each save, and deletes once the new checkpoint is committed. A checkpoint that was found damaged lies in `damaged/` by then
and counts for nothing, so the newest here is the newest good one.
"""

import math
import re
import sys

import jax
import numpy as np

NAME = "pinned"


def kept(steps, rule, pinned, scores):
    """The steps that stay, as a set.

    steps: of all checkpoints; rule: a `parts.Checkpoint`; pinned: steps; scores: {step: {name of a held-out score: value}}. The best is
    as `best` says.
    """
    stay = set(sorted(steps)[-rule.keep :]) | (set(steps) & set(pinned))
    if rule.keep_every:
        stay |= {step for step in steps if step % rule.keep_every == 0}
    return stay | {
        step
        for step in [best({step: scores.get(step, {}) for step in steps}, rule.best)]
        if step is not None
    }


def best(scores, name):
    """The step with the best finite score of a name, of equals the newest; None where there is none. The lowest loss is best, the highest metric."""
    judged = [(find_cost(name, one.get(name, math.nan)), -step) for step, one in scores.items()]
    judged = [pair for pair in judged if math.isfinite(pair[0])]
    return -min(judged)[1] if judged else None


def find_cost(name, score) -> float:
    """Return a number that is smaller the better a held-out score is: of a loss itself, of a metric its negative; infinite for none."""
    if not math.isfinite(score):
        return math.inf
    return score if name == "loss" else -score


def pins(path):
    """The steps in a file of numbers, none where there is no file. Raises ValueError, which names the file, for anything else in it."""
    words = re.split(r"[\s,]+", path.read_text().strip()) if path.exists() else []
    try:
        return {int(word) for word in words if word}
    except ValueError as error:
        raise ValueError(f"{path} is to hold the numbers of steps, one a line ({error})") from error


class Retention:
    """A preservation policy of Orbax for one workdir. The first process decides for all, since a person may be writing to `pinned`."""

    def __init__(self, rule, workdir):
        self.rule, self.path, self.scores = rule, workdir / NAME, {}

    def learn(self, steps, scores_of):
        """Look up the scores of the steps there are, which an earlier start may have saved. scores_of(step): {name: value}."""
        if self.rule.best:
            self.scores = {
                step: self.scores[step] if step in self.scores else scores_of(step)
                for step in steps
            }

    def note(self, step, scores):
        """Of the step that is about to be saved."""
        if self.rule.best:
            self.scores[step] = scores

    def should_preserve(self, checkpoints, *, context=None):
        """A bool for each of Orbax's descriptions of a checkpoint."""
        steps = [checkpoint.step for checkpoint in checkpoints]
        try:
            stay = kept(steps, self.rule, pins(self.path), self.scores)
        except (ValueError, OSError) as error:  # what is meant to stay is not known
            print(f"no checkpoint is deleted: {error}", file=sys.stderr)
            stay = steps
        mask = np.isin(steps, list(stay))
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            mask = np.asarray(multihost_utils.broadcast_one_to_all(mask))
        return [bool(one) for one in mask]
