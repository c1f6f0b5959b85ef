"""The settings of whole-word masking."""

from dataclasses import dataclass
from typing import Literal

from data.rows.words import WordFinder
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True, kw_only=True)
class WholeWords:
    """What a word is, for objectives that mask whole words or n-grams."""

    # `script`: pieces of scripts without blanks (Chinese, Japanese, Thai) are words; `blanks`: a
    # word ends at a blank alone, for texts whose words were separated beforehand.
    word_boundaries: Literal["script", "blanks"] = "script"
    max_word_pieces: int = 16  # a longer run without a boundary is masked piece by piece

    def find_words(self, vocabulary: Vocabulary) -> WordFinder:
        """Return what finds the words of rows of this vocabulary's ids."""
        return WordFinder(vocabulary, self.word_boundaries, self.max_word_pieces)
