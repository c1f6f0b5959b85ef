"""ROUGE (Lin 2004): how much of a reference is in what was written, as F1, with one reference each.

Words are runs of letters and digits in lower case, unstemmed. Of several texts the mean counts. Out of 100, as it is usually told.

N words of the reference   M words of what was written
"""

import re
from collections import Counter
from statistics import fmean

WORD = re.compile(r"[^\W_]+")


def rouge_n(n):
    """ROUGE-N (section 2) as a function of (what was written, references), lists of texts: the n-grams that both have."""

    def common(written, reference):
        grams = [
            Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
            for words in (written, reference)
        ]
        return (grams[0] & grams[1]).total(), grams[0].total(), grams[1].total()

    return lambda written, references: _mean(common, written, references)


def rouge_l(written, references):
    """ROUGE-L of whole texts (section 3.1): their longest common subsequence of words."""
    return _mean(
        lambda a_M, b_N: (longest_common(a_M, b_N), len(a_M), len(b_N)), written, references
    )


def longest_common(a_M, b_N):
    """The length of the longest common subsequence, by one addition of N-bit numbers for each of the M words (Hyyrö 2004)."""
    places, row = {}, (1 << len(b_N)) - 1
    for n, word in enumerate(b_N):
        places[word] = places.get(word, 0) | 1 << n
    for word in a_M:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & (1 << len(b_N)) - 1
    return len(b_N) - row.bit_count()


def _mean(common, written, references):
    """The mean of F1; common: (words written, words of the reference) -> (shared, written, in the reference), counts."""
    return 100 * fmean(
        _f1(*common(*(WORD.findall(text.lower()) for text in pair)))
        for pair in zip(written, references, strict=True)
    )


def _f1(shared, written, wanted):
    """0 where a side has nothing: two texts without a word tell nothing of each other."""
    return 2 * shared / (written + wanted) if shared else 0.0
