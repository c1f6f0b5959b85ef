"""The bits of hash dropout have the requested probability, and no pattern that a network could
learn.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from models.layers.dropout import Dropout
from pretrain.kernels.hash_dropout import drop_by_hash, make_bits, make_keep_mask, mix_bits
from pretrain.kernels.model_hooks import OPS

KEY = np.array([17, 2**31 + 5], np.uint32)
SHAPE = (8, 4, 96, 128)  # as attention's weights


def count_deviations(share, chance, count):
    """Return by how many standard deviations a share of `count` independent coins differs from its
    probability.
    """
    return abs(share - chance) / math.sqrt(chance * (1 - chance) / count)


def test_mix_is_a_bijection_that_spreads_each_bit():
    """The hash is invertible, and each input bit flips each output bit with probability 1/2
    (avalanche), for counters as inputs.
    """
    x = np.arange(1 << 16, dtype=np.uint32)
    for inputs in (x, x << np.uint32(16)):
        y = np.asarray(mix_bits(inputs))
        y = y ^ (y >> np.uint32(16))
        y = y * np.uint32(pow(0x846CA68B, -1, 2**32))
        y = y ^ (y >> np.uint32(15)) ^ (y >> np.uint32(30))
        y = y * np.uint32(pow(0x7FEB352D, -1, 2**32))
        np.testing.assert_array_equal(y ^ (y >> np.uint32(16)), inputs)
    for bit in range(32):
        turned = np.asarray(mix_bits(x) ^ mix_bits(x ^ np.uint32(1 << bit)))
        shares = [(turned >> out & 1).mean() for out in range(32)]
        assert 0.45 < min(shares) <= max(shares) < 0.55, bit


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_requested_share(rate):
    """Over all of the array, and over each of its rows, columns and heads: by chi-square."""
    mask = np.asarray(make_keep_mask(KEY, rate, SHAPE))
    assert count_deviations(mask.mean(), 1 - rate, mask.size) < 4
    for axes in ((3,), (0, 1, 2), (0, 2, 3), (1, 2, 3), (2, 3)):
        sums = mask.sum(axes)
        n = mask.size / sums.size
        square = ((sums - n * (1 - rate)) ** 2).sum() / (n * rate * (1 - rate))
        assert 1e-5 < scipy.special.chdtrc(sums.size, square) < 1 - 1e-5, axes


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    "shift",
    [
        (0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 64), (0, 0, 1, 0), (0, 0, 1, 1), (0, 1, 0, 0),
        (1, 0, 0, 0), (1, 1, 1, 1),
    ],
)  # fmt: skip
def test_neighbours_are_independent(shift):
    mask = np.asarray(make_keep_mask(KEY, 0.5, SHAPE))
    same = mask == np.roll(mask, shift, range(4))
    assert count_deviations(same.mean(), 0.5, same.size) < 4


def test_keys_are_independent():
    """Keys that differ in one bit of either word, and consecutive keys."""
    mask = np.asarray(make_keep_mask(KEY, 0.5, SHAPE))
    others = [
        KEY ^ np.array(flip, np.uint32)
        for flip in ((1, 0), (0, 1), (1 << 31, 0), (0, 1 << 31), (1, 1))
    ] + [KEY[::-1]]
    for other in others:
        same = mask == np.asarray(make_keep_mask(other, 0.5, SHAPE))
        assert count_deviations(same.mean(), 0.5, same.size) < 4


def test_bits_are_uniform():
    """Count the upper and the lower byte: chi-square with 255 degrees of freedom."""
    drawn = np.asarray(make_bits(KEY, (512, 1024)))
    for byte in (drawn >> 24, drawn & 255):
        counts = np.bincount(byte.ravel(), minlength=256)
        square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
        assert 1e-5 < scipy.special.chdtrc(255, square) < 1 - 1e-5


def test_a_rectangle_of_rank_two_is_not_dropped():
    """A mask that is an outer pattern of rows and columns has few large singular values; a random
    one has sqrt(m) + sqrt(n).
    """
    mask = np.asarray(make_keep_mask(KEY, 0.5, (512, 512))).astype(np.float64) - 0.5
    largest = np.linalg.svd(mask * 2, compute_uv=False)[0]
    assert largest < 1.1 * (math.sqrt(512) + math.sqrt(512))


@partial(jax.jit, static_argnums=0)
def differentiate(function, x, gradient):
    """Return the value of a function and its gradient."""
    y, back = jax.vjp(function, x)
    return y, *back(gradient)


def test_the_mean_stays_and_the_gradient_falls_in_the_same_places():
    x = np.ones((64, 256), np.float32)
    y, d = differentiate(lambda x: drop_by_hash(x, KEY, 0.25, x.shape), x, np.full_like(x, 3.0))
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)} and abs(float(y.mean()) - 1) < 0.02
    np.testing.assert_allclose(d, 3 * y, rtol=1e-6)


def test_drop_is_the_plain_one_given_its_mask():
    """Forward and backward, bit by bit: x / (1 - rate) where the mask is True, and 0 elsewhere."""
    x, g = (jax.random.normal(jax.random.key(seed), (6, 40)) for seed in range(2))
    for rate in (0.25, 0.5):  # 1 / (1 - rate) is rounded the same way in both

        def drop_by_mask(x, rate=rate):
            return jnp.where(
                make_keep_mask(KEY, rate, x.shape), x * np.float32(1 / (1 - rate)), 0.0
            )

        y, d = differentiate(lambda x, rate=rate: drop_by_hash(x, KEY, rate, x.shape), x, g)
        plain, plain_d = differentiate(drop_by_mask, x, g)
        np.testing.assert_array_equal(y, plain)
        np.testing.assert_array_equal(d, plain_d)
        assert (np.asarray(y) == 0).any()


def test_a_module_drops_by_the_hash():
    x, key = jnp.ones((4, 64)), jax.random.key(0)
    draw = Dropout(0.5, ops=OPS).apply(
        {}, deterministic=False, method="bind_key", rngs={"dropout": key}
    )
    y = Dropout(0.5, ops=OPS).apply({}, x, deterministic=False, rngs={"dropout": key})
    np.testing.assert_array_equal(y, drop_by_hash(x, draw.key, 0.5, x.shape))
