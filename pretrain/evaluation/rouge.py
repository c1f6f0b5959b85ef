"""ROUGE (Lin 2004): overlap of generated texts with one reference each, as F1.

Words are runs of letters and digits in lower case, unstemmed. Scores are means over the texts, out
of 100.

N words of the reference   M words of the generated text
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import fmean

WORD = re.compile(r"[^\W_]+")
# (words of the generated text, words of the reference) -> (shared, generated, reference counts)
CountCommon = Callable[[Sequence[str], Sequence[str]], tuple[int, int, int]]


def rouge_n(n: int) -> Callable[[Sequence[str], Sequence[str]], float]:
    """Return a function (generated texts, references) that computes ROUGE-N (section 2)."""

    def common(written: Sequence[str], reference: Sequence[str]) -> tuple[int, int, int]:
        ngrams = [
            Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            for words in (written, reference)
        ]
        return (ngrams[0] & ngrams[1]).total(), ngrams[0].total(), ngrams[1].total()

    return lambda written, references: _mean(common, written, references)


def rouge_l(written: Sequence[str], references: Sequence[str]) -> float:
    """Return ROUGE-L of whole texts (section 3.1): by their longest common subsequence of words."""
    return _mean(
        lambda a_M, b_N: (longest_common(a_M, b_N), len(a_M), len(b_N)), written, references
    )


def longest_common(a_M: Sequence[str], b_N: Sequence[str]) -> int:
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


def _mean(common: CountCommon, written: Sequence[str], references: Sequence[str]) -> float:
    """Return the mean F1 of pairs of texts, out of 100."""
    return 100 * fmean(
        _f1(*common(*(WORD.findall(text.lower()) for text in pair)))
        for pair in zip(written, references, strict=True)
    )


def _f1(shared: int, written: int, wanted: int) -> float:
    """Return F1 from three counts; 0 if nothing is shared, also if both texts have no word."""
    return 2 * shared / (written + wanted) if shared else 0.0
