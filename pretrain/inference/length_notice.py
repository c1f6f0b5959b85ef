"""A note on rows that are longer than the rows of the training.

Rotary and relative positions have no table. A model then computes something for all rows up to
`model.length`, but has learned no distance beyond its training rows.
"""

from __future__ import annotations

from data.mixed import split_objective
from models.config.base import ModelConfig
from pretrain.config import Run, print_notice
from pretrain.workdir.trained import Trained


class LengthNotice:
    """Prints a note to stderr when a row is longer than the rows of the training, once."""

    def __init__(self, trained: Trained) -> None:
        """Remember the model."""
        self.trained, self.is_printed = trained, False

    def report(self, length: int) -> None:
        """Print the note if a row of this length is too long.

        length: [tokens] of the longest row, with what is still to be generated.
        """
        limit = find_row_length(self.trained.run)
        if self.is_printed or limit is None or length <= limit:
            return
        # A model that began with another's parameters may know longer rows.
        if self.trained.read_origin() is not None:
            return
        print_notice(
            f"note: a row of {length} tokens is longer than the {limit} tokens of the training "
            "rows, so its far positions are untrained: train on with a larger data.objective.length"
        )
        self.is_printed = True


def find_row_length(run: Run) -> int | None:
    """Return the length of the training rows, where the model reads longer ones; else None.

    A model with a table of positions does not, and one with a head is trained on texts of any
    length.
    """
    if not isinstance(run.model, ModelConfig) or "length" not in run.model.not_in_tensors:
        return None
    return max(
        objective.axis_sizes()["L"] for objective in split_objective(run.data.objective).values()
    )
