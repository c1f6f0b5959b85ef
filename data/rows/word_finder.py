"""The words of rows of ids.

B rows   L row length   N ids of the vocabulary   W words of all rows
"""

import numpy as np

from data.rows import hashing
from data.vocabulary.base import Vocabulary

RUN_PHASE = 24  # purpose of a draw


class WordFinder:
    """Finds the words of rows of ids. The constructor does all look-ups in the vocabulary.

    Attributes:
      starts_N: whether each id begins a word: bool [N].
      ends_N: whether a word begins after each id: bool [N].
      overlap: tokens of a word, where tokens share letters, so that one can be read off the next;
        0: they do not.
    """

    def __init__(self, vocabulary: Vocabulary, word_boundaries: str, max_pieces: int) -> None:
        """Prepare to find words.

        Args:
          word_boundaries: `script` or `blanks`, as `WholeWords` has it.
        """
        special_N = np.asarray(vocabulary.special)
        self.max_pieces = max_pieces
        self.ends_N = special_N & (np.arange(len(special_N)) != vocabulary.unk)
        self.overlap = vocabulary.overlap
        if self.overlap:
            self.starts_N = self.ends_N.copy()
            return
        self.starts_N = np.asarray(vocabulary.starts_word) | self.ends_N
        if word_boundaries == "script":
            begins_N, closes_N = vocabulary.script_boundaries
            self.starts_N, self.ends_N = self.starts_N | begins_N, self.ends_N | closes_N

    def mark_starts(
        self, starts_BL: np.ndarray, ends_BL: np.ndarray, key_B: np.ndarray
    ) -> np.ndarray:
        """Return the first token of each word, bool [B, L]; `starts_BL` is changed in place.

        Where tokens overlap, the keys draw where their runs begin.
        """
        starts_BL[:, 1:] |= ends_BL[:, :-1]
        starts_BL[:, 0] = True
        if self.overlap:
            place_L = np.arange(starts_BL.shape[1])
            first_BL = np.maximum.accumulate(np.where(starts_BL, place_L, 0), axis=1)
            bits_B = hashing.draw_uint64(hashing.derive_keys(key_B, RUN_PHASE), 1)[:, 0]
            phase_B = hashing.bits_to_ints(bits_B, self.overlap)
            starts_BL |= (place_L - first_BL + phase_B[:, None]) % self.overlap == 0
            return starts_BL  # no run is cut, whatever `max_pieces` is: a part of it hides nothing
        flat = starts_BL.reshape(-1)
        first_W = np.flatnonzero(flat)
        length_W = np.diff(first_W, append=flat.size)
        for word in np.flatnonzero(length_W > self.max_pieces):  # few
            flat[first_W[word] : first_W[word] + length_W[word]] = True
        return starts_BL
