"""The settings of what a word is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from data.members import call_later
from data.vocabulary.base import Vocabulary

if TYPE_CHECKING:
    from data.rows.word_finder import WordFinder

make_word_finder = call_later("data.rows.word_finder:WordFinder")  # for runs that mask words


@dataclass(frozen=True, kw_only=True)
class WholeWords:
    """What a word is, for objectives that mask whole words or n-grams."""

    # script: each piece of a script without blanks is a word; blanks: words end at blanks alone,
    # for segmented text
    word_boundaries: Literal["script", "blanks"] = "script"
    max_word_pieces: int = 16  # longer runs without a boundary are masked piece by piece

    def find_words(self, vocabulary: Vocabulary) -> "WordFinder":
        """Return what finds the words of rows of this vocabulary's ids."""
        return make_word_finder(vocabulary, self.word_boundaries, self.max_word_pieces)
