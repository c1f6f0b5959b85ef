"""The settings of whole-word masking."""

from dataclasses import dataclass
from typing import Literal

from data.rows.words import WordFinder
from data.vocabulary.base import Vocabulary


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
