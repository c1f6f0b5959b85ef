"""What every objective's record has. Its class is its configuration; a file of this folder holds one.

A file that is added here is found by its class's `name`, as is its loss, `pretrain/training/losses/NAME.py`
(docs/adding_an_objective.md).
"""

import abc
from typing import ClassVar

from data.batch_spec import Field
from data.inspection.checks import Check
from data.inspection.rendering import token_row


class Objective(abc.ABC):
    """One objective: which rows a split has, what a batch of them holds, and what a reader is shown of it.

    name:        of the objective, as commands print it
    description: what a model card says of it, with the names of its fields in braces
    gaps:        which of the readers of `data.inspection.gaps` finds the gaps of a row; "" for none
    trains_as:   the name of another objective, whose batches have the same keys: the models that it trains take this one, too
    """

    name: ClassVar[str]
    description: ClassVar[str]
    gaps: ClassVar[str] = ""
    trains_as: ClassVar[str] = ""

    @abc.abstractmethod
    def dims(self) -> dict[str, int]:
        """Return the sizes of the letters of the spec's `dims`, but for B: L, which every objective has, and others."""

    @abc.abstractmethod
    def spec(self) -> dict[str, Field]:
        """Return {key: Field} of a batch, in its order."""

    def check(self, vocabulary) -> None:  # noqa: B027 - an objective may have nothing to check
        """Raise a ValueError unless these settings make sense with this vocabulary."""

    @abc.abstractmethod
    def examples(self, split, vocabulary):
        """Return (table of rows, build), where build(row_B, key_B) is the batch of those rows, drawn as the keys say.

        The table has `count`, the number of rows, and `offsets`, int [sources + 1], at which the rows of each source begin.
        """

    def measure(self, stream, seen, token_id) -> list[Check]:
        """Return the promises of this objective, each held against `seen`, a list of `data.inspection.checks.Seen`."""
        return []

    def render(self, stream, seen, i: int) -> dict:
        """Return row i of a batch as a person reads it: {"row", "tokens", ...}, as data/inspection/rendering.py has it."""
        return token_row(stream, seen, i)
