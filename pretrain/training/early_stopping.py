"""Early stopping: end a run whose held-out score has stopped improving (Prechelt 1998).

The counts are part of each checkpoint's record, so a run that was killed and resumed stops where it
would have stopped without the interruption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pretrain.workdir.retention import find_cost


class EarlyStopping:
    """Counts the evaluations since the best score.

    All processes of a run see the same scores, so they make the same decision.
    """

    def __init__(self, patience: int, name: str, resumed: Mapping[str, Any]) -> None:
        """Begin with the counts of a checkpoint.

        Args:
          patience: as in `schema.Evaluate`; 0 never stops early.
          name: of the score, as `schema.Checkpoint.best`.
          resumed: what `make_record` returned when that checkpoint was saved, or {}.
        """
        self.patience, self.name = patience, name
        same_score = resumed.get("name") == name
        self.best: float | None = resumed.get("best") if same_score else None
        self.best_step = resumed.get("best_step", 0) if same_score else 0
        self.evaluations = resumed.get("evaluations", 0) if same_score else 0

    def note_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Count an evaluation. A score that is not finite is never an improvement."""
        if not self.name:
            return
        best_cost = math.inf if self.best is None else find_cost(self.name, self.best)
        cost = find_cost(self.name, scores[self.name])
        self.evaluations = 0 if cost < best_cost else self.evaluations + 1
        if cost <= best_cost and cost < math.inf:  # ties: the newest, as checkpoint.best
            self.best, self.best_step = scores[self.name], step

    @property
    def is_exhausted(self) -> bool:
        """Whether the run must end."""
        return 0 < self.patience <= self.evaluations

    def describe_stop(self) -> str:
        """Return why the run ends."""
        best = "it was never finite"
        if self.best is not None:
            best = (
                f"the best is {self.best:.4g} at step {self.best_step:,}, "
                "which checkpoint.best keeps"
            )
        return (
            f"stopped early: the held-out {self.name} has not improved in {self.evaluations} "
            f"evaluations (evaluate.patience={self.patience}); {best}"
        )

    def make_record(self) -> dict[str, Any]:
        """Return the counts that a checkpoint must record for a run that resumes from it."""
        return {
            "name": self.name,
            "best": self.best,
            "best_step": self.best_step,
            "evaluations": self.evaluations,
        }
