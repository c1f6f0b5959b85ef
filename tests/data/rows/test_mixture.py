"""The mixture equals a sequential reference: its rates, and how many examples of each source came
before.
"""

import numpy as np
import pytest

from data.rows.mixture import BLOCK, Mixture, apportion_places


@pytest.mark.parametrize(
    "rates", [(0.7, 0.2, 0.1), (1, 0, 1), (1e-9, 1.0), (3,), tuple(range(1, 105))]
)
def test_counts_are_those_of_a_walk(rates):
    mixture = Mixture(rates, seed=3)
    source, before = mixture(np.arange(2 * BLOCK + 100))
    seen = np.zeros(len(rates), np.int64)
    expected = np.empty(len(source), np.int64)
    for place, s in enumerate(source.tolist()):
        expected[place] = seen[s]
        seen[s] += 1
    assert np.array_equal(before, expected)
    share = np.bincount(source[:BLOCK], minlength=len(rates)) / BLOCK
    assert np.abs(share - np.array(rates) / sum(rates)).max() <= 1.5 / BLOCK
    assert all((count > 0) == (rate > 0) for count, rate in zip(mixture.counts_S, rates))


def test_any_place_by_itself():
    mixture = Mixture((2, 1), seed=0)
    source, before = mixture(np.array([10**12 + 5]))
    again, counts = mixture(np.arange(10**12, 10**12 + 10))
    assert source[0] == again[5] and before[0] == counts[5]


def test_sources_are_spread_evenly_and_by_the_seed():
    one, other = (Mixture((3, 1), seed=seed)(np.arange(BLOCK))[0] for seed in (1, 2))
    assert not np.array_equal(one, other)
    for source in (one, other):
        per_batch = source.reshape(-1, 32).sum(axis=1)
        assert per_batch.min() >= 6 and per_batch.max() <= 10  # 8 of 32 on average


def test_shares_are_whole_and_complete():
    assert apportion_places([1, 1, 1], 10).tolist() == [4, 3, 3]
    assert apportion_places([0.5, 0.25, 0.25], 8).tolist() == [4, 2, 2]
    assert apportion_places([1e-12, 1.0], 8).tolist() == [1, 7]
