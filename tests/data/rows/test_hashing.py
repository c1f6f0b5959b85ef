"""Hashes equal the published generator's, and draws have the expected distributions."""

import numpy as np

from data.rows import hashing

U64 = 2**64


def generate_splitmix64(state, n):
    """Run the generator of Steele, Lea & Flood (2014) in Python integers."""
    out = []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) % U64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % U64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % U64
        out.append(z ^ (z >> 31))
    return out


def test_words_are_splitmix64():
    # The first outputs of the reference implementation for this seed.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert generate_splitmix64(1234567, 4) == published
    keys = np.array([1234567, 0, U64 - 1], np.uint64)
    drawn = hashing.draw_uint64(keys, 40)
    assert drawn.tolist() == [generate_splitmix64(int(key), 40) for key in keys]
    halves = hashing.draw_uint32(keys, 7)
    assert halves.shape == (3, 7) and halves.dtype == np.uint32
    assert (
        halves[1].tolist()
        == [half for z in generate_splitmix64(0, 4) for half in (z % 2**32, z >> 32)][:7]
    )


def test_keys_depend_on_every_coordinate_and_their_order():
    rows = np.arange(10, 1010)
    seen = [
        hashing.derive_keys(1, 2, rows),
        hashing.derive_keys(2, 1, rows),
        hashing.derive_keys(1, 2, 0, rows),
        hashing.derive_keys(1, rows, 2),
    ]
    assert len(np.unique(np.concatenate(seen))) == 4 * 1000
    assert hashing.derive_keys(1, 2, rows[5:6]) == hashing.derive_keys(1, 2, 15) == seen[0][5]


def test_below_and_chance_have_their_distributions():
    bits = hashing.draw_uint64(hashing.derive_keys(7), 60_000)[0]
    counts = np.bincount(hashing.bits_to_ints(bits, 12), minlength=12)
    assert (
        len(counts) == 12 and ((counts - 5000) ** 2 / 5000).sum() < 31.3
    )  # chi-square, 11 degrees, p = 0.001
    sizes = np.arange(1, 60_001)
    assert (hashing.bits_to_ints(bits, sizes) < sizes).all() and hashing.bits_to_ints(
        bits[:1], 1
    ) == 0
    assert abs(hashing.bits_to_bools(bits, 0.1).mean() - 0.1) < 4 * np.sqrt(0.09 / 60_000)
    assert hashing.bits_to_bools(bits, 1.0).all() and not hashing.bits_to_bools(bits, 0.0).any()


def test_choose_draws_every_subset_equally_often():
    chosen = hashing.choose_subset(hashing.derive_keys(3, np.arange(20_000)), 6, 3)
    assert (np.diff(chosen, axis=1) > 0).all() and chosen.min() == 0 and chosen.max() == 5
    subsets, counts = np.unique(chosen, axis=0, return_counts=True)
    assert (
        len(subsets) == 20 and ((counts - 1000) ** 2 / 1000).sum() < 43.8
    )  # 19 degrees, p = 0.001
    assert hashing.choose_subset(hashing.derive_keys(3), 5, 5).tolist() == [[0, 1, 2, 3, 4]]
    assert hashing.choose_subset(hashing.derive_keys(3, np.arange(4)), 5, 0).shape == (4, 0)
    wide = hashing.choose_subset(hashing.derive_keys(3, np.arange(4)), 5000, 700)
    assert all(len(set(row)) == 700 for row in wide.tolist()) and wide.max() < 5000


def test_a_subset_of_millions_is_spread_evenly():
    """Each tenth of the numbers has its share; of fewer than 2^16 the draws are as ever."""
    n, k = 3_000_000, 500
    chosen = hashing.choose_subset(hashing.derive_keys(0), n, k)
    assert chosen.shape == (1, k) and chosen.dtype == np.int64
    assert (np.diff(chosen[0]) > 0).all() and 0 <= chosen[0, 0] and chosen[0, -1] < n
    shares = np.bincount(chosen[0] * 10 // n, minlength=10)
    assert shares.min() > 25 and shares.max() < 80  # 50 each, standard deviation 6.7
