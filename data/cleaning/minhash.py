"""Near copies by MinHash (Broder 1997) and locality-sensitive hashing.

The least of a random hash over the runs of five words of a document is equal in two documents with
a probability that is the Jaccard similarity s of their runs. 112 such hashes are cut into b groups
of r. Two documents that agree in a whole group are near copies, which happens with the probability
1 - (1 - s^r)^b. It is one half near s = (1/b)^(1/r): .72 for 14 groups of 8.

Axes: S runs of words, D documents, K hashes.
"""

import numpy as np

from data.cleaning.word_hashes import mix_bits

NUM_HASHES = 112
RUN_WORDS = 5
BLOCK_RUNS = 1 << 14  # runs of words whose hashes stay in a processor's cache
MULTIPLIERS = mix_bits(np.arange(1, NUM_HASHES + 1, dtype=np.uint64)) | np.uint64(1)


def choose_groups(threshold: float) -> tuple[int, int]:
    """Return (groups, hashes of a group) whose (1/groups)^(1/hashes) is nearest to a similarity."""
    options = [(NUM_HASHES // size, size) for size in range(1, NUM_HASHES + 1)]
    return min(options, key=lambda option: abs(option[0] ** (-1 / option[1]) - threshold))


def compute_signatures(hashes_S: np.ndarray, first_D: np.ndarray) -> np.ndarray:
    """Return uint64 [D, K]: the least of each hash over the runs of each document.

    Args:
      hashes_S: hashes of runs of words, see `data.cleaning.word_hashes.hash_runs`.
      first_D: int64 [D + 1], the first run of each document, and the number of runs.
    """
    signatures = np.empty((len(first_D) - 1, NUM_HASHES), np.uint64)
    document = 0
    while document < len(signatures):
        last = np.searchsorted(first_D, first_D[document] + BLOCK_RUNS, "right") - 1
        stop = max(document + 1, int(last))
        runs = hashes_S[first_D[document] : first_D[stop]]
        starts, products = first_D[document:stop] - first_D[document], np.empty_like(runs)
        for i, multiplier in enumerate(MULTIPLIERS):
            # Multiplication by an odd number permutes the numbers of 64 bits.
            np.multiply(runs, multiplier, out=products)
            signatures[document:stop, i] = np.minimum.reduceat(products, starts)
        document = stop
    return signatures


def compute_group_keys(signatures_DK: np.ndarray, groups: int, size: int) -> np.ndarray:
    """Return uint64 [D, groups]: a hash of each group of `size` hashes."""
    parts = signatures_DK[:, : groups * size].reshape(-1, groups, size)
    keys = np.zeros(parts.shape[:2], np.uint64)
    for i in range(size):
        keys = mix_bits(keys ^ parts[:, :, i])
    return keys
