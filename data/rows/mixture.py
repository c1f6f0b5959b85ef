"""A mixture of sources at given rates, in which any position of the order is computed by itself.

Positions are cut into blocks of 65,536, or of more where a source would have few of them. Every
block gives each source the same number of positions, as near to its rate as whole numbers allow, in
the same seeded pattern, spread as evenly as the rates allow. So the source of position g, and the
number of positions before g that this source had, take one look-up: the examples of each source
come strictly one after another.

B positions   N positions of a block   S sources
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from data.rows import hashing

BLOCK, MAX_BLOCK = 1 << 16, 1 << 22
LEAST_PLACES = 16  # of a source in a block: its share is then within 1/32 of its rate


class Mixture:
    """The source from which each position of the order takes its example."""

    def __init__(self, rates: Sequence[float], seed: Any) -> None:
        """Compute the pattern of a block.

        Args:
          rates: one for each source, at least one of them above 0.
        """
        self.block = choose_block(rates)
        self.counts_S = apportion_places(rates, self.block)
        self.source_N, self.rank_N = make_pattern(self.counts_S, seed)

    def __call__(self, position_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (source, number of examples that it gave before) of each position: int64 [B]."""
        block_B, within_B = np.divmod(position_B, self.block)
        source_B = self.source_N[within_B]
        return source_B, block_B * self.counts_S[source_B] + self.rank_N[within_B]


def choose_block(rates: Sequence[float]) -> int:
    """Return the smallest block in which each source has LEAST_PLACES, at most MAX_BLOCK."""
    share, block = compute_least_share(rates), BLOCK
    while block * share < LEAST_PLACES and block < MAX_BLOCK:
        block *= 2
    return block


def compute_least_share(rates: Sequence[float]) -> float:
    """Return the smallest share of the rates above 0 in their sum."""
    rates_S = np.asarray(rates, np.float64)
    return float(rates_S[rates_S > 0].min() / rates_S.sum())


def apportion_places(rates: Sequence[float], total: int) -> np.ndarray:
    """Return whole numbers [S] that sum to `total`, in proportion to the rates.

    This is the method of largest remainders; each rate above 0 gets at least 1.
    """
    rates_S = np.asarray(rates, np.float64)
    exact = rates_S / rates_S.sum() * total
    counts = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(counts - exact, kind="stable")
    counts[by_remainder[: total - counts.sum()]] += 1
    for source in np.flatnonzero((rates_S > 0) & (counts == 0)):
        counts[np.argmax(counts)] -= 1
        counts[source] = 1
    return counts


def make_pattern(counts_S: np.ndarray, seed: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (source, rank in its source) [N] of the positions of a block.

    The examples of each source are evenly spread, with a jitter.
    """
    source = np.repeat(np.arange(len(counts_S)), counts_S)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(counts_S) - counts_S, counts_S)
    jitter = hashing.derive_keys(seed, source, rank) >> np.uint64(11)
    time = (rank + jitter * 2.0**-53) / counts_S[source]
    order = np.lexsort((source, rank, time))
    return source[order], rank[order]


def check_rates(rates: Sequence[float], names: Sequence[str]) -> None:
    """Raise a ValueError unless there is a valid rate for each source."""
    if len(rates) != len(names):
        known = ", ".join(names)
        raise ValueError(
            f"data.rates has {len(rates)} values, but the store has {len(names)} sources: {known}"
        )
    if min(rates) < 0 or not 0 < sum(rates) < np.inf:
        raise ValueError(f"data.rates={tuple(rates)}: rates are 0 or more, and one of them above 0")


def check_least_share(rates: Sequence[float], names: Sequence[str]) -> None:
    """Raise a ValueError if a source would have a share of more than twice its rate."""
    if compute_least_share(rates) * MAX_BLOCK < 0.5:
        least = min((rate, name) for rate, name in zip(rates, names) if rate > 0)
        raise ValueError(
            f"data.rates: {least[1]} has {least[0] / sum(rates):.1g} of the rows, which is less "
            f"than one of {2 * MAX_BLOCK:,}: give it a higher rate, or 0 to leave it out"
        )


def strip_common_folders(names: Sequence[str]) -> list[str]:
    """Return paths without the folders with which all of them begin."""
    split = [name.split("/") for name in names]
    depth, most = 0, min(map(len, split)) - 1 if len(split) > 1 else 0
    while depth < most and len({parts[depth] for parts in split}) == 1:
        depth += 1
    return ["/".join(parts[depth:]) for parts in split]
