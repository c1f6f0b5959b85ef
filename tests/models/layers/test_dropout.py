"""Dropout by its definition: how many values are dropped, where, and the scale of the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.dropout import Dropout
from models.layers.ops import PLAIN

KEY = np.array([17, 2**31 + 5], np.uint32)
BOTH = pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])


@BOTH
def test_dropout_keeps_the_requested_share(rate):
    y = np.asarray(PLAIN.drop(jnp.ones((512, 512)), KEY, rate, (512, 512)))
    share = (y != 0).mean()
    assert abs(share - (1 - rate)) < 4 * (rate * (1 - rate) / y.size) ** 0.5
    np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)


def test_the_gradient_falls_in_the_same_places():
    x = jnp.ones((64, 256))
    y, back = jax.vjp(lambda x: PLAIN.drop(x, KEY, 0.25, x.shape), x)
    np.testing.assert_allclose(back(jnp.full_like(y, 3.0))[0], 3 * y, rtol=1e-6)
    assert (y != PLAIN.drop(x, KEY[::-1], 0.25, x.shape)).any()


def test_values_keep_their_type():
    x = jnp.ones((8, 8), jnp.bfloat16)
    assert PLAIN.drop(x, KEY, 0.25, x.shape).dtype == jnp.bfloat16


def test_shared_axes_have_one_bit():
    y = np.asarray(
        Dropout(0.5, broadcast_dims=(-2,)).apply(
            {}, jnp.ones((4, 8, 32)), deterministic=False, rngs={"dropout": jax.random.key(0)}
        )
    )
    assert (y == y[:, :1]).all() and len(np.unique(y[:, 0], axis=0)) == 4


def test_all_and_none():
    x = jnp.ones((2, 3))
    assert (
        Dropout(0.0).apply({}, x, deterministic=False) is x
        and Dropout(0.5).apply({}, x, deterministic=True) is x
    )
    assert (
        not Dropout(1.0)
        .apply({}, x, deterministic=False, rngs={"dropout": jax.random.key(0)})
        .any()
    )
