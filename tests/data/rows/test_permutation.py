"""The computed shuffle is a permutation of any size, differs per key, and looks random."""

import numpy as np
import pytest

from data.rows import hashing
from data.rows.permutation import find_factors, permute_indices


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 10, 97, 1000, 4096, 65_537, 300_007])
def test_permutes(n):
    sent = permute_indices(np.arange(n), n, hashing.derive_keys(1, n))
    assert np.array_equal(np.sort(sent), np.arange(n))
    if n > 50:
        assert not np.array_equal(sent, permute_indices(np.arange(n), n, hashing.derive_keys(2, n)))
        assert (
            sent == np.arange(n)
        ).sum() < 15  # a random permutation has one fixed point on average


def test_single_indices_of_several_sizes_at_once():
    sizes = np.array([1, 5, 5, 1000, 123_456_789_012, 7])
    keys = hashing.derive_keys(9, np.arange(6))
    index = np.array([0, 4, 3, 999, 123_456_789_011, 6])
    together = permute_indices(index, sizes, keys)
    alone = [permute_indices(index[i : i + 1], int(sizes[i]), keys[i : i + 1])[0] for i in range(6)]
    assert together.tolist() == alone and (together < sizes).all() and (together >= 0).all()


def test_every_index_reaches_every_position_equally_often():
    keys = hashing.derive_keys(5, np.arange(20_000))
    sent = np.stack([permute_indices(np.full(20_000, i), 10, keys) for i in range(10)])
    counts = np.stack([np.bincount(row, minlength=10) for row in sent])
    assert ((counts - 2000) ** 2 / 2000).sum() < 126  # chi-square, 81 degrees, p = 0.001
    neighbours = np.bincount(
        (sent[1] - sent[0]) % 10, minlength=10
    )  # never 0, the others equally often
    assert (
        neighbours[0] == 0 and ((neighbours[1:] - 20_000 / 9) ** 2 / (20_000 / 9)).sum() < 27
    )  # 8 degrees


def test_sides_are_just_large_enough():
    n = np.array([1, 2, 3, 4, 99, 100, 101, 2**40 + 1], np.uint64)
    a, b = find_factors(n)
    assert (a * b >= n).all() and (a * b - n < a).all()
