"""A shuffle of any size that is computed, not stored: a keyed permutation of range(n).

A Feistel network over Z_a x Z_b with a * b just above n, as Black and Rogaway (2002) build ciphers
on arbitrary finite domains: index (l, r) becomes l + F(r) mod a, then r + F(l) mod b, and so on. A
result of n or more goes through the network again until it is below n, which takes another pass for
about one index in sqrt(n).

B indices
"""

import math
from typing import Any

import numpy as np

from data.rows.hashing import GAMMA, mix_bits

# One salt for each round. Luby and Rackoff (1988) need four rounds for a permutation that few
# queries cannot tell from a random one.
ROUND_SALTS = [np.uint64(int(GAMMA) * (i + 1) % 2**64) for i in range(6)]


def permute_indices(index_B: np.ndarray, n_B: Any, key_B: np.ndarray) -> np.ndarray:
    """Return the image of each index under the permutation of range(n) of its key: int64 [B].

    Args:
      index_B: integers in [0, n).
      n_B: an integer, or one for each index.
      key_B: uint64 keys, one for each index (`hashing.derive_keys`).
    """
    x_B = np.array(index_B, np.uint64)
    n_B = np.broadcast_to(np.asarray(n_B).astype(np.uint64), x_B.shape)
    key_B = np.broadcast_to(key_B, x_B.shape)
    a_B, b_B = find_factors(n_B)
    x_B = apply_feistel(x_B, a_B, b_B, key_B)
    while (outside := x_B >= n_B).any():
        x_B[outside] = apply_feistel(x_B[outside], a_B[outside], b_B[outside], key_B[outside])
    return x_B.astype(np.int64)


def find_factors(n_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest near-square factors with a * b >= n.

    They are a = ceil(sqrt(n)) and b = ceil(n / a).
    """
    if len(n_B) and (n_B == n_B[0]).all():
        sizes, which = n_B[:1], np.zeros(len(n_B), np.int64)
    else:
        sizes, which = np.unique(n_B, return_inverse=True)
    a = np.array([math.isqrt(int(n) - 1) + 1 for n in sizes], np.uint64)
    b = (sizes + a - np.uint64(1)) // a
    return a[which], b[which]


def apply_feistel(
    x_B: np.ndarray, a_B: np.ndarray, b_B: np.ndarray, key_B: np.ndarray
) -> np.ndarray:
    """Return the result of one pass of the network: a permutation of range(a * b)."""
    high, low = x_B // b_B, x_B % b_B
    for i, salt in enumerate(ROUND_SALTS):
        if i % 2 == 0:
            high = (high + (mix_bits((key_B + salt) ^ low) >> np.uint64(32))) % a_B
        else:
            low = (low + (mix_bits((key_B + salt) ^ high) >> np.uint64(32))) % b_B
    return high * b_B + low
