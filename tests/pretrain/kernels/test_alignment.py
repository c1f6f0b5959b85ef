"""A product with columns of zeros is the product, and so are its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.ops import apply_linear
from pretrain.kernels.alignment import pad_columns
from pretrain.kernels.matmul import matmul

N, I = 24, 16


def draw_values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [1031, 1032, 33])
def test_a_padded_product_is_the_product(columns, dtype):
    x, kernel, weights = (
        draw_values(0, 3, N, I),
        draw_values(1, I, columns),
        draw_values(2, columns),
    )
    shapes = []

    def linear(x, kernel, *rest):
        shapes.append(kernel.shape)
        return apply_linear(x, kernel, *rest)

    def weigh(linear, x, kernel):
        y = linear(x.astype(dtype), kernel.astype(dtype), 1, jnp.float32)
        assert y.shape == (3, N, columns) and y.dtype == jnp.float32
        return (jnp.sin(y) * weights).sum()

    compute = jax.jit(jax.value_and_grad(weigh, (1, 2)), static_argnums=0)
    value, gradients = compute(pad_columns(linear), x, kernel)
    expected, expected_gradients = compute(apply_linear, x, kernel)
    assert shapes == [(I, 1152 if columns == 1031 else columns)]
    assert value == pytest.approx(float(expected), rel=1e-5)
    for one, other in zip(gradients, expected_gradients):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-4)


def test_kernels_of_several_dimensions_are_left_alone():
    x, kernel = draw_values(0, N, I), draw_values(1, I, 3, 1031)
    np.testing.assert_array_equal(
        pad_columns(matmul)(x, kernel, 1, jnp.float32), matmul(x, kernel, 1, jnp.float32)
    )
