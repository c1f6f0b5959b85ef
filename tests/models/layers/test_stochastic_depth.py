"""Stochastic depth: the expectation, the rate of each layer, and that layers draw apart."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.dropout import PathDropout
from models.layers.stack import Stack
from models.layers.wiring import PreNormLayer


class Ones(nn.Module):
    """A sublayer that returns 1 everywhere."""

    @nn.compact
    def __call__(self, x, memory=None, train=False, **rest):
        return jnp.ones_like(x)


def test_the_expectation_stays_and_rows_are_dropped_whole():
    x = jnp.ones((4000, 3, 2))
    found = PathDropout().apply({}, x, jnp.float32(0.3), rngs={"dropout": jax.random.key(0)})
    by_row = np.asarray(found).reshape(4000, -1)
    assert (by_row == by_row[:, :1]).all()
    np.testing.assert_allclose(np.unique(by_row), [0, 1 / 0.7], rtol=1e-6)
    assert abs((by_row[:, 0] == 0).mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 4000)
    assert abs(by_row.mean() - 1) < 0.05


@pytest.mark.parametrize(("scan", "remat"), [(True, False), (True, True), (False, False)])
def test_each_layer_has_its_own_rate(scan, remat):
    """A layer with two sublayers of ones adds 2 in the mean, at every rate, and the number of rows
    that skip one is that of its rate.
    """
    rates = np.array([0.0, 0.25, 0.5], np.float32)
    layer = partial(PreNormLayer, Ones, Ones, norm=Ones)
    stack = Stack(layer, 3, scan=scan, remat=remat)
    x = jnp.zeros((4000, 1, 1))
    found = np.asarray(
        stack.apply(
            {},
            x,
            True,
            by_layer={"path_rate": rates},
            rngs={"dropout": jax.random.key(1)},
        )
    )[:, 0, 0]
    # layer 0 adds 2; layer 1 adds 0, 1 or 2 times 4/3; layer 2 adds 0, 1 or 2 times 2
    steps = {2 + 4 / 3 * i + 2 * j: (i, j) for i in range(3) for j in range(3)}
    places = np.array(list(steps))
    nearest = np.abs(found[:, None] - places).argmin(1)
    np.testing.assert_allclose(found, places[nearest], rtol=1e-5)
    counts = np.array(list(steps.values()))[nearest]
    for column, rate in ((0, 0.25), (1, 0.5)):
        share = counts[:, column].mean() / 2
        assert abs(share - (1 - rate)) < 4 * np.sqrt(rate * (1 - rate) / 8000)
    assert abs(np.corrcoef(counts.T)[0, 1]) < 0.06  # layers draw independently
    both = (counts[:, 1] == 2).mean()
    assert abs(both - 0.25) < 0.03  # and so do the two sublayers of one
