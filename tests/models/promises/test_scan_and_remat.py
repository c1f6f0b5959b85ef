"""Scanning over the layers, and recomputing activations in the backward pass, change no loss and no
gradient.
"""

import functools

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
def score_plainly(case, unroll):
    """Return the score and the gradients of layers that are neither scanned nor recomputed, in
    NumPy, whose arithmetic compiles nothing.
    """
    plain, params = case.replace(scan=False, remat=False), unroll(case.params, case.depths)
    return jax.device_get(compute_score(plain, params, case.batch))


WITH_ALL_PARAMETERS = for_cases(of=lambda name: name != "t5")  # v1.1 covers both versions
# Elsewhere than in these, scanned layers that are not recomputed are tried with CLOZE_BOARD=whole.
ALONE = ("bert", "gpt", "transformer_xl")


@WITH_ALL_PARAMETERS
@pytest.mark.parametrize("remat", [True, False])
def test_scan_and_remat_change_nothing(request, case, unroll, remat):
    """Gradients are compared of a layer that is applied repeatedly, a table that all layers read,
    and an encoder that a decoder reads.
    """
    if not remat and case.name not in ALONE:
        request.getfixturevalue("whole")
    value, grads = score_plainly(case, unroll)
    other = case.replace(scan=True, remat=remat)
    found, found_grads = jax.device_get(compute_score(other, case.params, case.batch))
    np.testing.assert_allclose(found, value, rtol=1e-6)
    jax.tree.map(assert_close, unroll(found_grads, case.depths), grads)


@WITH_ALL_PARAMETERS
def test_a_gradient_reaches_every_parameter(case, unroll):
    """Otherwise the test above would compare zeros. A key's bias adds one number to all scores of a
    query: its gradient is 0. No objective here reads ESM-2's head of contacts.
    """
    _, grads = score_plainly(case, unroll)
    reached = flax.traverse_util.flatten_dict(grads)
    smallest = {
        "/".join(path): abs(leaf).max()
        for path, leaf in reached.items()
        if path[-2:] != ("key", "bias") and not path[0].startswith("contact_")
    }
    assert min(smallest.values()) > 1e-5, min(smallest, key=lambda path: smallest[path])
