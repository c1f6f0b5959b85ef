"""A note on rows that are longer than the rows of the training.

Rotary and relative positions have no table. A model then computes something for all rows up to
`model.length`, but has learned no distance beyond its training rows.
"""

from __future__ import annotations

from data.mixed import split_objective
from models.config.base import ModelConfig
from pretrain.config import print_notice
from pretrain.workdir.trained import Trained


class LengthNotice:
    """Prints a note to stderr when a row is longer than the rows of the training, once."""

    def __init__(self, trained: Trained) -> None:
        """Find the length of the rows of the training."""
        self.limit = find_trained_length(trained)

    def report(self, length: int) -> None:
        """Print the note if a row of this length is too long.

        length: [tokens] of the longest row, with what is still to be generated.
        """
        if self.limit is None or length <= self.limit:
            return
        print_notice(
            f"note: a row of {length} tokens is longer than the {self.limit} tokens of the "
            "training rows, so its far positions are untrained: train on with a larger "
            "data.objective.length"
        )
        self.limit = None


def find_trained_length(trained: Trained) -> int | None:
    """Return the length of the rows of a run that began here; None where no length is known.

    It is unknown of a model with a table of positions, whose rows are never longer; with a head;
    or that began with the parameters of another one.
    """
    model = trained.run.model
    has_limit = isinstance(model, ModelConfig) and "length" in model.not_in_tensors
    if not has_limit or trained.read_origin() is not None:
        return None
    objectives = split_objective(trained.run.data.objective).values()
    return max(objective.axis_sizes()["L"] for objective in objectives)
