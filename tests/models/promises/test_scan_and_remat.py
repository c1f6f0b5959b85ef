"""Scanning over the layers, and recomputing activations in the backward pass, change no loss and no
gradient.
"""

import functools
from functools import partial

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.promises.cases import for_cases


def compute_score(model, params, batch, **how):
    """Return a number that depends on every output, and its gradients."""

    def compute_loss(params):
        leaves = jax.tree.leaves(model.apply({"params": params}, **batch, **how))
        words, *rest = (leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))
        assert words.shape[-1] == 50
        values = [jax.nn.log_softmax(words)[..., :7], *rest]
        return sum(jnp.square(value.astype(jnp.float32)).mean() for value in values)

    return jax.jit(jax.value_and_grad(compute_loss))(params)


def assert_close(found, expected):
    """Rounding is relative to the largest summands: over 20 draws of all parameters it is at most
    1.5e-6 of them.
    """
    bound = 2e-6 * max(1, abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


@functools.cache
def score_by_default(case):
    return compute_score(case.model, case.params, case.batch)


WITH_ALL_PARAMETERS = for_cases(of=lambda name: name != "t5")  # v1.1 covers both versions


@WITH_ALL_PARAMETERS
@pytest.mark.parametrize(("scan", "remat"), [(True, True), (False, False)])
def test_scan_and_remat_change_nothing(case, unroll, scan, remat):
    """Gradients are compared of a layer that is applied repeatedly, a table that all layers read,
    and an encoder that a decoder reads.
    """
    value, grads = score_by_default(case)
    depths = case.depths
    arrange = (lambda tree: tree) if scan else partial(unroll, depths=depths)
    other = case.replace(scan=scan, remat=remat)
    found, found_grads = compute_score(other, arrange(case.params), case.batch)
    np.testing.assert_allclose(found, value, rtol=1e-6)
    jax.tree.map(assert_close, found_grads, arrange(grads))


@WITH_ALL_PARAMETERS
def test_a_gradient_reaches_every_parameter(case):
    """Otherwise the test above would compare zeros. A key's bias adds one number to all scores of a
    query: its gradient is 0.
    """
    _, grads = score_by_default(case)
    reached = flax.traverse_util.flatten_dict(grads)
    smallest = {
        "/".join(path): abs(leaf).max()
        for path, leaf in reached.items()
        if path[-2:] != ("key", "bias")
    }
    assert min(smallest.values()) > 1e-5, min(smallest, key=lambda path: smallest[path])
