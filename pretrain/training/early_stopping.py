"""Early stopping: a run ends when its held-out score has not become better for some evaluations (Prechelt 1998).

The counts are part of each checkpoint's record, so a run that was killed and goes on stops where it would have stopped.
"""

import math

from pretrain.workdir.retention import find_cost


class EarlyStopping:
    """Counts the evaluations since the best score. All processes of a run see the same scores, so they agree."""

    def __init__(self, patience, name, resumed):
        """patience: of `schema.Evaluate`, 0 for a run that never stops early; name: of the score, `schema.Checkpoint.best`; resumed: what
        `record` gave when the checkpoint was saved that the run goes on from, or {}."""
        self.patience, self.name = patience, name
        same = resumed.get("name") == name
        self.best: float | None = resumed.get("best") if same else None
        self.best_step = resumed.get("best_step", 0) if same else 0
        self.evaluations = resumed.get("evaluations", 0) if same else 0

    def note(self, step, scores):
        """Take in the scores of an evaluation. One that is not finite is never better."""
        if not self.name:
            return
        least = math.inf if self.best is None else find_cost(self.name, self.best)
        cost = find_cost(self.name, scores[self.name])
        self.evaluations = 0 if cost < least else self.evaluations + 1
        if cost <= least and cost < math.inf:  # of equals the newest, as checkpoint.best has it
            self.best, self.best_step = scores[self.name], step

    @property
    def is_exhausted(self) -> bool:
        """Whether the run is to end."""
        return 0 < self.patience <= self.evaluations

    def describe(self) -> str:
        """Return why the run ends."""
        best = "it was never finite"
        if self.best is not None:
            best = (
                f"best is {self.best:.4g} at step {self.best_step:,}, which checkpoint.best keeps"
            )
        return (
            f"stopped early: the held-out {self.name} has not become better in {self.evaluations} evaluations "
            f"(evaluate.patience={self.patience}); {best}"
        )

    def record(self) -> dict:
        """Return what a checkpoint must record for a run that goes on from it."""
        return {
            "name": self.name,
            "best": self.best,
            "best_step": self.best_step,
            "evaluations": self.evaluations,
        }
