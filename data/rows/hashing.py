"""Random numbers without state: every draw is a hash of its coordinates.

The hash is SplitMix64 (Steele, Lea and Flood 2014). A sequential generator must be replayed to
reach example 10^9; a hash of (seed, epoch, row, position) need not, and it gives the same number in
any process, on any host, in any order. All functions work on whole arrays.

B keys   N draws of one key   K chosen numbers
"""

from typing import Any

import numpy as np

# What the draws of an example are for. Each purpose takes
# draw_uint64(derive_keys(example, PURPOSE), n), so that no two purposes share a draw.
(
    PAIR,
    COINS_A,
    COINS_B,
    ORDER,
    HIDE,
    UNMASKED_LENGTHS,
    REMOVED_LENGTHS,
    NGRAMS,
    SWAP,
    FILL,
    SENTENCES,
    SPAN_LENGTHS,
    SPAN_STARTS,
    FACTORIZATION,
    FIELDS,
    ZERO_STATE,
    CROP,
    AUGMENT,
    ERASE,
    MIX,
) = range(1, 21)

# SplitMix64's step between the draws of a key: 2^64 divided by the golden ratio.
GAMMA = np.uint64(0x9E3779B97F4A7C15)

# The most numbers that leave enough of 32 bits random next to the number itself; of more numbers,
# the first would be favored.
MAX_PACKED = 1 << 16


def mix_bits(z: np.ndarray) -> np.ndarray:
    """Hash uint64 to uint64, one to one, in place: SplitMix64's finaliser (Stafford variant 13)."""
    shifted = z >> 30
    z ^= shifted
    z *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(z, 27, out=shifted)
    z ^= shifted
    z *= np.uint64(0x94D049BB133111EB)
    np.right_shift(z, 31, out=shifted)
    z ^= shifted
    return z


def derive_keys(*coordinates: Any) -> np.ndarray:
    """Return the uint64 keys of coordinates, which are integers or arrays of integers.

    The key is a chain of hashes, so the order of the coordinates matters. Shapes broadcast.
    """
    state = np.zeros(1, np.uint64)
    for coordinate in coordinates:
        state = mix_bits((state + GAMMA) ^ np.asarray(coordinate).astype(np.uint64))
    return state


def draw_uint64(key_B: np.ndarray, n: int) -> np.ndarray:
    """Draw 64 random bits `n` times for each key: uint64 [B, N]."""
    steps_N = np.arange(1, n + 1, dtype=np.uint64) * GAMMA
    return mix_bits(key_B[:, None] + steps_N)


def draw_uint32(key_B: np.ndarray, n: int) -> np.ndarray:
    """Draw 32 random bits `n` times for each key: uint32 [B, N], two of each hash."""
    bits = draw_uint64(key_B, (n + 1) // 2).astype("<u8", copy=False)
    return bits.view("<u4")[:, :n]


def draw_uniforms(key_B: np.ndarray, n: int) -> np.ndarray:
    """Draw uniform multiples of 2^-24 in [0, 1), `n` for each key: float32 [B, N]."""
    return (draw_uint32(key_B, n) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)


def bits_to_ints(bits: np.ndarray, n: Any) -> np.ndarray:
    """Return uniform integers in [0, n), int64, from the upper 32 of 64 random bits.

    n: an integer below 2^32, or an array of them.
    """
    return ((bits >> np.uint64(32)) * np.asarray(n).astype(np.uint64) >> np.uint64(32)).astype(
        np.int64
    )


def bits_to_bools(bits: np.ndarray, probability: float) -> np.ndarray:
    """Return True with the given probability, from the upper 32 of 64 random bits."""
    return (bits >> np.uint64(32)) < np.uint64(round(probability * 2**32))


def choose_subset(key_B: np.ndarray, n: int, k: int) -> np.ndarray:
    """Draw `k` of range(n) without replacement for each key: int64 [B, K], ascending.

    All subsets are equally likely. Each number gets 32 bits whose lower ones are the number itself,
    so that sorting needs no indices. Of more than MAX_PACKED numbers each gets 64 random bits.
    """
    if k == 0:
        return np.zeros((len(key_B), 0), np.int64)
    if n > MAX_PACKED:
        chosen_BK = np.argpartition(draw_uint64(key_B, n), min(k, n) - 1, axis=1)[:, :k]
        return np.sort(chosen_BK, axis=1)
    order_BN = shuffle_columns(key_B, n)
    subset_BK = np.partition(order_BN, k - 1, axis=1)[:, :k] if k < n else order_BN
    subset_BK = subset_BK & np.uint32(make_position_mask(n))
    subset_BK.sort(axis=1)
    return subset_BK.astype(np.int64)


def shuffle_columns(key_B: np.ndarray, n: int) -> np.ndarray:
    """Return random uint32 [B, N] whose lower bits are the column.

    Their order is a random permutation of the columns.
    """
    mask = np.uint32(make_position_mask(n))
    bits = draw_uint32(key_B, n)
    bits &= ~mask
    bits |= np.arange(n, dtype=np.uint32)
    return bits


def make_position_mask(n: int) -> int:
    """Return the mask of the lower bits that hold a column of range(n)."""
    return (1 << max(n - 1, 1).bit_length()) - 1
