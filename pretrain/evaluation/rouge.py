"""ROUGE (Lin 2004): overlap of generated texts with one reference each, as F1.

Words are runs of letters and digits with their marks (the vowel signs of Hindi), in lower case and
unstemmed. In scripts without blanks, such as Chinese and Thai, each letter is a word. Scores are
means over the texts, out of 100.

N words of the reference   M words of the generated text
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

from data.vocabulary.word_boundaries import is_without_blanks

# (words of the generated text, words of the reference) -> (shared, generated, reference counts)
CountCommon = Callable[[Sequence[str], Sequence[str]], tuple[int, int, int]]


def make_rouge_n(n: int) -> Callable[[Sequence[str], Sequence[str]], float]:
    """Return a function (generated texts, references) that computes ROUGE-N (section 2)."""

    def count_common(generated: Sequence[str], reference: Sequence[str]) -> tuple[int, int, int]:
        ngrams = [
            Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            for words in (generated, reference)
        ]
        return (ngrams[0] & ngrams[1]).total(), ngrams[0].total(), ngrams[1].total()

    return lambda written, references: _average_f1(count_common, written, references)


def compute_rouge_l(generated: Sequence[str], references: Sequence[str]) -> float:
    """Return ROUGE-L of whole texts (section 3.1): by their longest common subsequence of words."""
    return _average_f1(
        lambda a_M, b_N: (compute_lcs_length(a_M, b_N), len(a_M), len(b_N)), generated, references
    )


def compute_lcs_length(a_M: Sequence[str], b_N: Sequence[str]) -> int:
    """Return the length of the longest common subsequence of two lists of words.

    It takes one addition of N-bit integers for each of the M words (Hyyrö 2004).
    """
    positions: dict[str, int] = {}
    row = (1 << len(b_N)) - 1
    for n, word in enumerate(b_N):
        positions[word] = positions.get(word, 0) | 1 << n
    for word in a_M:
        matches = row & positions.get(word, 0)
        row = (row + matches | row - matches) & (1 << len(b_N)) - 1
    return len(b_N) - row.bit_count()


def split_words(text: str) -> list[str]:
    """Return the words of a text."""
    words: list[str] = []
    is_open: bool | None = None  # whether a letter continues the last word; None: nor does a mark
    for character in text:
        if unicodedata.category(character)[0] == "M":  # a mark belongs to the letter before it
            if words and is_open is not None:
                words[-1] += character
        elif not character.isalnum():
            is_open = None
        elif is_without_blanks(character):
            words.append(character)
            is_open = False
        elif is_open:
            words[-1] += character
        else:
            words.append(character)
            is_open = True
    return words


def _average_f1(
    count_common: CountCommon, generated: Sequence[str], references: Sequence[str]
) -> float:
    """Return the mean F1 of pairs of texts, out of 100."""
    return 100 * fmean(
        _compute_f1(*count_common(*(split_words(text.lower()) for text in pair)))
        for pair in zip(generated, references, strict=True)
    )


def _compute_f1(shared: int, generated: int, reference: int) -> float:
    """Return F1 from three counts; 0 if nothing is shared, also if both texts have no word."""
    return 2 * shared / (generated + reference) if shared else 0.0
