"""The cell of most mutual information with each property of a text (Karpathy et al. 2015).

The information is in bits, estimated from counts.

T characters   C cells
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pretrain.inference.cells.read_text import ReadText

OPENING, CLOSING = frozenset("([{"), frozenset(")]}")


class Property(NamedTuple):
    """A property of the characters.

    Attributes:
      compute: (text) -> int64 [T], the value after each character.
      num_classes: values are sorted into so many classes at most.
      is_marked: whether characters where it is not 0 are underlined on the page.
    """

    name: str
    compute: Callable[[str], np.ndarray]
    num_classes: int = 8
    is_marked: bool = False


def mark_quotes(text: str) -> np.ndarray:
    """Return 1 inside double quotes, from the opening mark to before the closing one, else 0.

    A straight mark opens or closes; a curved one says which. A blank line ends what is open.
    """
    values, is_open = np.zeros(len(text), np.int64), False
    for t, sign in enumerate(text):
        if sign in "“”":
            is_open = sign == "“"
        elif sign == '"':
            is_open = not is_open
        elif sign == "\n" and t and text[t - 1] == "\n":
            is_open = False
        values[t] = is_open
    return values


def count_brackets(text: str) -> np.ndarray:
    """Return the number of open brackets: round, square or curly. It is never below 0."""
    values, depth = np.zeros(len(text), np.int64), 0
    for t, sign in enumerate(text):
        depth = max(0, depth + (sign in OPENING) - (sign in CLOSING))
        values[t] = depth
    return values


def count_in_line(text: str) -> np.ndarray:
    """Return the number of characters since the last line break, the character included."""
    return _count_since_last(text, lambda sign: sign != "\n")


def count_in_word(text: str) -> np.ndarray:
    """Return the number of letters and digits since the last other character, itself included."""
    return _count_since_last(text, str.isalnum)


def _count_since_last(text: str, is_counted: Callable[[str], bool]) -> np.ndarray:
    values, count = np.zeros(len(text), np.int64), 0
    for t, sign in enumerate(text):
        count = count + 1 if is_counted(sign) else 0
        values[t] = count
    return values


PROPERTIES = (
    Property("inside quotes", mark_quotes, 2, is_marked=True),
    Property("position in the line", count_in_line),
    Property("bracket depth", count_brackets, 4, is_marked=True),
    Property("position in the word", count_in_word),
)


CELL_BINS = 16  # by quantiles, and as many of equal width: rare values are apart too


def sort_into_classes(value_T: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the class of each value, int64 [T]: `num_classes` of equal counts, ties together."""
    shares = np.linspace(0, 1, num_classes + 1)[1:-1]
    edges = np.unique(np.quantile(value_T, shares, method="lower"))
    if len(np.unique(value_T)) <= num_classes:
        edges = np.unique(value_T)[:-1]
    return np.searchsorted(edges, value_T, side="left")


def sort_into_bins(x_T: np.ndarray) -> np.ndarray:
    """Return the bin of each activation of a cell, int64 [T]; equal activations share one."""
    shares = np.linspace(0, 1, CELL_BINS + 1)[1:-1]
    edges = [np.quantile(x_T, shares, method="lower"), np.min(x_T) + shares * np.ptp(x_T)]
    return np.searchsorted(np.unique(np.concatenate(edges)), x_T, side="left")


def measure_entropy(class_T: np.ndarray) -> float:
    """Return the entropy of the classes in bits, with the correction of Miller (1955).

    Counts are of few samples where there are many classes: -sum p log p is too small by about
    (K - 1) / 2 T nats with K classes that occur.
    """
    count_K = np.bincount(class_T)
    count_K = count_K[count_K > 0]
    share_K = count_K / len(class_T)
    correction = (len(count_K) - 1) / (2 * len(class_T))
    return float(-(share_K * np.log(share_K)).sum() + correction) / np.log(2)


def measure_information(x_T: np.ndarray, class_T: np.ndarray) -> float:
    """Return I(x; class) = H(x) + H(class) - H(x, class) in bits.

    Args:
      x_T: the activations of a cell, which are sorted into bins.
      class_T: integers from 0.
    """
    bin_T = sort_into_bins(x_T)
    joint_T = bin_T * (int(class_T.max()) + 1) + class_T
    return measure_entropy(bin_T) + measure_entropy(class_T) - measure_entropy(joint_T)


def rank_cells(cells_TC: np.ndarray, class_T: np.ndarray) -> list[tuple[int, float]]:
    """Return (cell, bits) of all cells, the most informative one first."""
    bits_C = [measure_information(x_T, class_T) for x_T in cells_TC.T]
    return sorted(enumerate(bits_C), key=lambda pair: (-pair[1], pair[0]))


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
    best = []
    for each in PROPERTIES:
        value_T = each.compute(read.text)[read.end_T - 1]
        class_T = sort_into_classes(value_T, each.num_classes)
        varies = class_T.any()
        ranked = rank_cells(read.cells_TC, class_T)[: 1 + RUNNERS_UP] if varies else ()
        entropy = measure_entropy(class_T) if varies else 0.0
        best.append(BestCells(each, value_T, entropy, tuple(ranked)))
    return best


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
