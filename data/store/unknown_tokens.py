"""Count the tokens of a split that the vocabulary does not know."""

from typing import Any

import numpy as np

from data.store.split import Split
from data.vocabulary.base import Vocabulary

NOTABLE = 0.01  # share of unknown tokens above which there is a line
BLOCK_TOKENS = 1 << 20  # tokens that are read at a time
MAX_BLOCKS = 16  # of a sample


def measure_unknown(split: Any, vocabulary: Any, is_sample: bool = False) -> float:
    """Return the share of unknown tokens of a split; 0 for ids that are not a text's.

    With `is_sample` only some blocks of a large split are read.
    """
    if not (isinstance(split, Split) and isinstance(vocabulary, Vocabulary)):
        return 0.0
    if vocabulary.unk is None or not len(split.tokens):
        return 0.0
    starts = range(0, len(split.tokens), BLOCK_TOKENS)
    if is_sample and len(starts) > MAX_BLOCKS:
        starts = starts[:: -(-len(starts) // MAX_BLOCKS)]
    blocks = [split.tokens[start : start + BLOCK_TOKENS] for start in starts]
    unknown = sum(np.count_nonzero(block == vocabulary.unk) for block in blocks)
    return unknown / sum(map(len, blocks))


def describe_unknown(share: float, what: str) -> list[str]:
    """Return a line for a share of unknown tokens that matters, or none."""
    if share <= NOTABLE:
        return []
    return [
        f"{share:.1%} of the tokens of {what} are unknown to the vocabulary: what they say is lost "
        "(docs/data.md)"
    ]
