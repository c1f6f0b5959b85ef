"""A shuffle of any size that is computed, not stored: a keyed permutation of range(n), one index at a time.

A Feistel network over Z_a x Z_b with a * b just above n, as Black & Rogaway (2002) build ciphers on arbitrary finite
domains: index (l, r) becomes l + F(r) mod a, then r + F(l) mod b, and so on. Results beyond n walk on until they fall
below it, which takes one step more for about one index in sqrt(n).
"""

import math

import numpy as np

from data.rows.hashing import GAMMA, mix

# One salt a round. Luby & Rackoff (1988) need four rounds for what no few queries tell from a random permutation.
SALTS = [np.uint64(int(GAMMA) * (i + 1) % 2**64) for i in range(6)]


def permute(index_B, n_B, key_B):
    """Where a permutation of range(n), chosen by the key, sends each index: int64 [B].

    index_B: integers in [0, n); n_B: a number or one per index; key_B: uint64 keys, one per index (`hashing.key`).
    """
    x_B = np.array(index_B, np.uint64)
    n_B = np.broadcast_to(np.asarray(n_B).astype(np.uint64), x_B.shape)
    key_B = np.broadcast_to(key_B, x_B.shape)
    a_B, b_B = sides(n_B)
    x_B = feistel(x_B, a_B, b_B, key_B)
    while (outside := x_B >= n_B).any():
        x_B[outside] = feistel(x_B[outside], a_B[outside], b_B[outside], key_B[outside])
    return x_B.astype(np.int64)


def sides(n_B):
    """a and b with a * b >= n, as square and as small as can be: a = ceil(sqrt(n)), b = ceil(n / a)."""
    if len(n_B) and (n_B == n_B[0]).all():
        sizes, which = n_B[:1], np.zeros(len(n_B), np.int64)
    else:
        sizes, which = np.unique(n_B, return_inverse=True)
    a = np.array([math.isqrt(int(n) - 1) + 1 for n in sizes], np.uint64)
    b = (sizes + a - np.uint64(1)) // a
    return a[which], b[which]


def feistel(x_B, a_B, b_B, key_B):
    """One pass of the network: a permutation of range(a * b)."""
    left, right = x_B // b_B, x_B % b_B
    for i, salt in enumerate(SALTS):
        if i % 2 == 0:
            left = (left + (mix((key_B + salt) ^ right) >> np.uint64(32))) % a_B
        else:
            right = (right + (mix((key_B + salt) ^ left) >> np.uint64(32))) % b_B
    return left * b_B + right
