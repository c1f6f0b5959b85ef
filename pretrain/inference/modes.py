"""Mode tokens, with which a text begins for a model trained on several denoisers.

Tay et al. 2022, section 3.2.
"""

from collections.abc import Sequence

from data.mixed import Mixed, split_objective
from data.objectives.objective import Objective
from data.vocabulary.base import Vocabulary


def list_modes(objective: Objective | Mixed, vocabulary: Vocabulary) -> list[int]:
    """Return the ids of the mode tokens of an objective, or of the parts of a mixture in order."""
    modes = [part.mode for part in split_objective(objective).values()]
    return [vocabulary.pieces.index(mode) for mode in dict.fromkeys(modes) if mode]


def add_mode(row: list[int], modes: Sequence[int]) -> list[int]:
    """Return the ids of a row after the first mode token.

    The row stays as it is if it already begins with a mode token, or if there are no modes.
    """
    return row if not modes or (row and row[0] in modes) else [modes[0], *row]
