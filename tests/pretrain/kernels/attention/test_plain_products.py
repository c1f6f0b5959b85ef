"""The products of attention equal the plain ones; on a CPU bfloat16's stay of bfloat16."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers import ops
from pretrain.kernels.attention.plain import attend

B, L, M, H, K = 2, 5, 7, 3, 4
TYPES = {"float32": (jnp.float32, 1e-5), "bfloat16": (jnp.bfloat16, 2**-7)}


def draw_normal(*shape, seed, dtype):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def compute_attention(function, dtype):
    """Return the value and the gradients of q, k and v, of the sum of squares, in float32."""
    arrays = [
        draw_normal(B, length, H, K, seed=seed, dtype=dtype)
        for seed, length in enumerate((L, M, M))
    ]

    def compute_sum(q, k, v):
        y = function(q, k, v)
        return (y.astype(jnp.float32) ** 2).sum(), y

    gradients, y = jax.jit(jax.grad(compute_sum, (0, 1, 2), has_aux=True))(*arrays)
    assert all(array.dtype == dtype for array in (y, *gradients))
    return [np.float32(array) for array in (y, *gradients)]


@pytest.mark.parametrize("dtype", TYPES)
def test_values_and_gradients_are_those_of_plain_attention_in_float32(dtype):
    """Of arrays that are rounded to bfloat16 first; the products of both are then the same."""
    dtype, tolerance = TYPES[dtype]

    def attend_in_float32(q, k, v):
        return ops.attend(*(x.astype(jnp.float32) for x in (q, k, v))).astype(dtype)

    found, expected = compute_attention(attend, dtype), compute_attention(attend_in_float32, dtype)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_cpu_multiplies_bfloat16_into_float32(platform):
    """Three products of a value and its gradients each for scores and sums. XLA's CPU compiler would
    make float32 copies of the inputs of a product whose result is bfloat16, or of mixed inputs.
    """
    arrays = [jax.ShapeDtypeStruct((B, length, H, K), jnp.bfloat16) for length in (L, M, M)]
    compute = jax.jit(
        jax.value_and_grad(lambda q, k, v: attend(q, k, v).astype(jnp.float32).sum(), (0, 1, 2))
    )
    text = compute.trace(*arrays).lower(lowering_platforms=(platform,)).as_text()
    types = re.findall(
        r"dot_general.*\(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\) -> tensor<[\dx]*(\w+)>", text
    )
    assert len(types) == 6
    assert (set(types) == {("bf16", "bf16", "f32")}) == (platform == "cpu")
