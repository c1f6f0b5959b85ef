"""The words of rows of ids, and the settings of what a word is.

B rows   L row length   N ids of the vocabulary   W words of all rows
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.vocabulary.base import Vocabulary


class WordFinder:
    """Finds the words of rows of ids. The constructor does all look-ups in the vocabulary.

    Attributes:
      starts_N: whether each id begins a word: bool [N].
      ends_N: whether a word begins after each id: bool [N].
    """

    def __init__(self, vocabulary: Vocabulary, word_boundaries: str, max_pieces: int) -> None:
        """Prepare to find words.

        Args:
          word_boundaries: `script` or `blanks`, as `WholeWords` has it.
        """
        special_N = np.asarray(vocabulary.special)
        self.max_pieces = max_pieces
        self.ends_N = special_N & (np.arange(len(special_N)) != vocabulary.unk)
        self.starts_N = np.asarray(vocabulary.starts_word) | self.ends_N
        if word_boundaries == "script":
            begins_N, closes_N = vocabulary.script_boundaries
            self.starts_N, self.ends_N = self.starts_N | begins_N, self.ends_N | closes_N

    def mark_starts(self, starts_BL: np.ndarray, ends_BL: np.ndarray) -> np.ndarray:
        """Return the first token of each word, bool [B, L]; `starts_BL` is changed in place."""
        starts_BL[:, 1:] |= ends_BL[:, :-1]
        starts_BL[:, 0] = True
        flat = starts_BL.reshape(-1)
        first_W = np.flatnonzero(flat)
        length_W = np.diff(first_W, append=flat.size)
        for word in np.flatnonzero(length_W > self.max_pieces):  # few
            flat[first_W[word] : first_W[word] + length_W[word]] = True
        return starts_BL


@dataclass(frozen=True, kw_only=True)
class WholeWords:
    """What a word is, for objectives that mask whole words or n-grams."""

    # script: each piece of a script without blanks is a word; blanks: words end at blanks alone,
    # for segmented text
    word_boundaries: Literal["script", "blanks"] = "script"
    max_word_pieces: int = 16  # longer runs without a boundary are masked piece by piece

    def find_words(self, vocabulary: Vocabulary) -> WordFinder:
        """Return what finds the words of rows of this vocabulary's ids."""
        return WordFinder(vocabulary, self.word_boundaries, self.max_word_pieces)
