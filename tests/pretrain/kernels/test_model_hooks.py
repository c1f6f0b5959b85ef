"""The operations of a GPU's mesh, as far as a CPU shows them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pretrain.kernels.model_hooks import keep_features_minor

pytestmark = pytest.mark.fast


def test_features_are_next_to_each_other_in_memory():
    x_BLD = jnp.arange(24.0).reshape(2, 3, 4)
    compute = jax.jit(jax.value_and_grad(lambda x: (keep_features_minor(x) ** 2).sum()))
    value, gradient = compute(x_BLD)
    assert float(value) == (np.arange(24) ** 2).sum()
    np.testing.assert_array_equal(gradient, 2 * x_BLD)
    text = compute.trace(x_BLD).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@LayoutConstraint") == 2  # of the activations, and of their gradient
    assert "dense<[2, 1, 0]>" in text
