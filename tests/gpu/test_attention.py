"""cuDNN's attention on a GPU is as exact as `attend` in bfloat16, forward and backward.

The reference is `attend` in float32 on the CPU, with the same inputs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from pretrain.config import Mesh
from pretrain.kernels.attention.choice import make_attend
from pretrain.kernels.attention.plain import attend
from pretrain.mesh.sharding import make_mesh

B, M, H, K = 4, 256, 4, 64
LENGTHS = np.array([[M], [200], [1], [130]])
VALID = np.arange(M) < LENGTHS
SEGMENTS = np.where(VALID, 1 + (np.arange(M) >= LENGTHS // 3), 0).astype(np.int32)
MASKS = {
    "none": None,
    "padding": make_padding_mask(VALID),
    "causal": make_causal_mask(),
    "window, padding": make_causal_mask(VALID, window=70),
    "packed": make_causal_mask(VALID, SEGMENTS),
    "packed both ways": make_padding_mask(VALID, SEGMENTS),
    "window both ways": Mask(window=70),
    "packed, window both ways": make_padding_mask(VALID, SEGMENTS).replace(window=71),
}
# XLA computes these: with a bias, a mask of pairs has no gradient in cuDNN.
PAIRS = ("packed", "packed both ways", "window both ways", "packed, window both ways")
# name of the mask, lengths of queries and keys, whether there is a bias; 114 are T5's targets of
# 512 tokens, which read 512 keys and themselves.
CASES = [(name, M, M, biased) for name in MASKS for biased in (False, True)]
CASES += [("padding", 114, M, False), ("causal", 114, 114, True), ("causal", 129, 129, False)]
ODD = 129  # cuDNN has no gradient, so XLA computes it
PARTS = ("o", "dq", "dk", "dv", "dbias")


def draw_values(seed, *shape):
    """Return numbers that bfloat16 has exactly."""
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return values.astype(jnp.bfloat16).astype(np.float32)


def run_attention(function, inputs, weights, mask, dtype, device):
    """Return the output where the weights are not 0 and the gradients, in float32 on the host."""

    def weigh_output(q, k, v, bias):
        o = function(q, k, v, mask=mask, bias=bias)
        return jnp.sum(o.astype(jnp.float32) * weights), o

    argnums = tuple(i for i, x in enumerate(inputs) if x is not None)
    with jax.default_device(device):
        arguments = [x if x is None else jnp.asarray(x, dtype) for x in inputs]
        compute = jax.jit(jax.value_and_grad(weigh_output, argnums, has_aux=True))
        (_, o), gradients = compute(*arguments)
    return [np.asarray(o, np.float32) * (weights != 0), *(np.float32(x) for x in gradients)]


@pytest.mark.parametrize(("name", "queries", "keys", "biased"), CASES, ids=str)
@pytest.mark.usefixtures("promoting")
def test_cudnn_is_as_exact_as_attend(gpu, name, queries, keys, biased):
    """The relative errors of the output and the gradients are at most `attend`'s, or half of
    bfloat16's precision.
    """
    shapes = [(B, queries, H, K), (B, keys, H, K), (B, keys, H, K)]
    inputs = [draw_values(seed, *shape) for seed, shape in enumerate(shapes)]
    inputs.append(draw_values(3, 1, H, queries, keys) if biased else None)
    weights = draw_values(4, B, queries, H, K)
    if queries == keys == M:
        weights *= VALID[..., None, None]  # padding may attend to anything
    heard = []
    kernel = make_attend(make_mesh(Mesh(1), [gpu]), lambda *line: heard.append(line))

    def measure_errors(function):
        values = run_attention(function, inputs, weights, MASKS[name], jnp.bfloat16, gpu)
        return [np.linalg.norm(x - y) / np.linalg.norm(y) for x, y in zip(values, exact)]

    exact = run_attention(attend, inputs, weights, MASKS[name], jnp.float32, jax.devices("cpu")[0])
    plain, fused = measure_errors(attend), measure_errors(kernel)
    plainly = (biased and name in PAIRS) or queries == ODD
    assert {chosen for chosen, _ in heard} == {"XLA" if plainly else "cuDNN"}
    for part, error, own in zip(PARTS, fused, plain):
        assert error <= max(1.1 * own, 2**-9), f"{part}: {error:.2e}, attend {own:.2e}"


def test_the_kernel_is_cudnns(gpu):
    """The compiled program calls cuDNN's flash attention, forward and backward."""
    kernel = make_attend(make_mesh(Mesh(1), [gpu]))
    q = jax.ShapeDtypeStruct((B, M, H, K), jnp.bfloat16)

    def sum_output(q, k, v):
        return kernel(q, k, v, mask=make_causal_mask()).astype(jnp.float32).sum()

    with jax.default_device(gpu):
        program = jax.jit(jax.grad(sum_output, (0, 1, 2))).lower(q, q, q).compile().as_text()
    assert "__cudnn$fmhaSoftmax" in program and "__cudnn$fmhaSoftmaxBackward" in program
