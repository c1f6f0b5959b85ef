"""The mixture equals a sequential reference: its rates, and how many examples of each source came
before.
"""

import numpy as np
import pytest

from data.rows.mixture import (
    BLOCK,
    MAX_BLOCK,
    Mixture,
    apportion_places,
    check_least_share,
    check_rates,
    choose_block,
)


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


def test_small_sources_have_their_rates():
    """A block has several places for each source, so that no rate is off by more than 1/32."""
    sizes = np.random.default_rng(0).lognormal(0, 1, 3000)
    for rates in ((1 - 1e-5, 1e-5), (1.0, 2.2e-5), tuple(sizes)):
        mixture, shares = Mixture(rates, seed=1), np.array(rates) / sum(rates)
        found = mixture.counts_S / mixture.counts_S.sum()
        assert np.abs(found / shares - 1).max() < 1 / 32
        source, before = mixture(np.arange(mixture.block, 2 * mixture.block))
        assert np.array_equal(np.bincount(source), mixture.counts_S)
        assert before.min() == mixture.counts_S.min() and before.max() < 2 * mixture.counts_S.max()


def test_a_block_grows_only_where_a_source_has_few_places():
    """So that the batches of other mixtures stay as in earlier versions."""
    assert Mixture((16.0, BLOCK - 16.0), seed=0).block == BLOCK
    assert Mixture((15.9, BLOCK - 15.9), seed=0).block == 2 * BLOCK
    assert choose_block((1e-12, 1.0)) == MAX_BLOCK


def test_a_share_below_all_blocks_is_refused():
    with pytest.raises(ValueError, match=r"rare has 1e-08 of the rows, .* one of 8,388,608: "):
        check_least_share((1.0, 1e-8), ("usual", "rare"))
    check_least_share((1.0, 0.0, 2e-7), ("usual", "none", "rare"))
    check_rates((1.0, 1e-8), ("usual", "rare"))  # of a store's sizes
    assert Mixture((1.0, 1e-8), seed=0).counts_S.tolist() == [MAX_BLOCK - 1, 1]
