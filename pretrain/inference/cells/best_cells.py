"""The cell of most mutual information with each property of a text.

T places   C cells
"""

from typing import NamedTuple

import numpy as np

from pretrain.inference.cells.information import measure_entropy, rank_cells, sort_into_classes
from pretrain.inference.cells.properties import PROPERTIES, Property
from pretrain.inference.cells.read_text import ReadText

RUNNERS_UP = 2


class BestCells(NamedTuple):
    """The cells that know most of a property.

    Attributes:
      property: the property.
      entropy: of its classes, in bits; 0 where the property is the same in all of the text.
      ranked: (cell, bits) of the best and the next ones; () where the entropy is 0.
    """

    property: Property
    value_T: np.ndarray
    entropy: float
    ranked: tuple[tuple[int, float], ...]


def find_best_cells(read: ReadText) -> list[BestCells]:
    """Return the best cells of each property of `PROPERTIES`."""
    found = []
    for each in PROPERTIES:
        value_T = each.compute(read.text)[read.end_T - 1]
        class_T = sort_into_classes(value_T, each.num_classes)
        varies = class_T.any()
        ranked = rank_cells(read.cells_TC, class_T)[: 1 + RUNNERS_UP] if varies else ()
        entropy = measure_entropy(class_T) if varies else 0.0
        found.append(BestCells(each, value_T, entropy, tuple(ranked)))
    return found


def choose_excerpt(best: BestCells, length: int) -> slice:
    """Return the places of the excerpt in which the property changes most often."""
    changes = np.append(0, np.cumsum(best.value_T[1:] != best.value_T[:-1]))
    starts = np.arange(max(1, len(changes) - length + 1))
    counts = changes[np.minimum(starts + length, len(changes)) - 1] - changes[starts]
    start = int(counts.argmax())
    return slice(start, start + length)


def describe_best(best: BestCells, read: ReadText) -> str:
    """Return one line: the cell and its bits, of the property's bits."""
    if not best.ranked:
        return f"{best.property.name}: the same in all of the text"
    cell, bits = best.ranked[0]
    return f"{best.property.name}: {read.name_cell(cell)}, {bits:.3f} of {best.entropy:.3f} bits"
