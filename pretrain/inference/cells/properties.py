"""Properties of each character of a text, which a reader knows after it (Karpathy et al. 2015).

T characters
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

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
