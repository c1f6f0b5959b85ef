"""A mixture of sources at given rates, in which any place of the order can be computed by itself.

Places are cut into blocks of 65,536. Every block gives each source the same number of places, as near to its rate as
whole numbers come, and the same seeded pattern of them, spread as evenly as the rates allow. So the source of place
g, and how many places before g that source had, take one look-up: within each source its examples come strictly one
after another.
"""

import numpy as np

from data.rows import hashing

BLOCK = 1 << 16


class Mixture:
    """Which source each place of the order takes its example from. rates: one a source, at least one above 0."""

    def __init__(self, rates, seed):
        self.counts_S = shares(rates, BLOCK)
        self.source_N, self.rank_N = pattern(self.counts_S, seed)

    def __call__(self, place_B):
        """(source, number of examples that the source gave before) of each place: int64 [B] both."""
        block_B, within_B = np.divmod(place_B, BLOCK)
        source_B = self.source_N[within_B]
        return source_B, block_B * self.counts_S[source_B] + self.rank_N[within_B]


def shares(rates, places):
    """Whole numbers [S] that make `places`, in proportion to the rates: largest remainders; a rate above 0 has one."""
    rates = np.asarray(rates, np.float64)
    exact = rates / rates.sum() * places
    counts = np.floor(exact).astype(np.int64)
    behind = np.argsort(counts - exact, kind="stable")
    counts[behind[: places - counts.sum()]] += 1
    for source in np.flatnonzero((rates > 0) & (counts == 0)):
        counts[np.argmax(counts)] -= 1
        counts[source] = 1
    return counts


def pattern(counts_S, seed):
    """(source, rank in its source) [N] of a block's places: each source's examples evenly spread, with a jitter."""
    source = np.repeat(np.arange(len(counts_S)), counts_S)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(counts_S) - counts_S, counts_S)
    jitter = hashing.key(seed, source, rank) >> np.uint64(11)
    time = (rank + jitter * 2.0**-53) / counts_S[source]
    order = np.lexsort((source, rank, time))
    return source[order], rank[order]
