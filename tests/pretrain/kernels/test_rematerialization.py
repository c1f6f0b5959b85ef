"""Recomputation in the backward pass: the gradients equal the plain operations', from fewer
saved arrays.

B batch   L length   M length of what is read   H heads   K head width   D width   F mlp width
"""

import math
import re
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.attention import Attention
from models.layers.dropout import Dropout, KeyedDropout
from models.layers.masks import make_causal_mask
from models.layers.mlp import GatedMlp, Mlp, gelu, gelu_tanh
from models.layers.norms import LayerNorm, RMSNorm, apply_layer_norm, apply_rms_norm
from models.layers.ops import PLAIN
from models.layers.ops import average_values as plain_average
from pretrain.kernels.attention.plain import attend, average_values, repeat_bias
from pretrain.kernels.hash_dropout import drop_by_hash as drop_by_hash
from pretrain.kernels.model_hooks import OPS
from pretrain.kernels.rematerialization import recompute_in_backward

B, L, M, H, K, D, F = 2, 5, 7, 3, 4, 6, 16
WORDS = np.array([7, 11], np.uint32)
DROPS = {
    "kept": None,
    "dropped": KeyedDropout(jnp.asarray(WORDS), 0.25, (), drop_by_hash),
    "shared": KeyedDropout(jnp.asarray(WORDS), 0.25, (1,), drop_by_hash),
    "all": KeyedDropout(jnp.asarray(WORDS), 1.0, (), drop_by_hash),
}


def draw_normal(*shape, seed=0, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def differentiate(function, arguments, seed):
    """Return the value and the gradients of all arguments, of one program, for a drawn gradient."""

    @jax.jit
    def compute(arguments):
        y, back = jax.vjp(function, *arguments)
        return y, *back(draw_normal(*y.shape, seed=seed, dtype=y.dtype))

    return compute(tuple(arguments))


def plain_attention(q, k, v, mask, bias, drop):
    """Section 3.2.1 of the paper as it is written; JAX derives the gradient."""
    scores = jnp.where(
        mask,
        jnp.einsum("blhk,bmhk->bhlm", q, k, preferred_element_type=jnp.float32) * K**-0.5 + bias,
        jnp.finfo(jnp.float32).min,
    )
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True)))
    weights = (weights / weights.sum(-1, keepdims=True)).astype(v.dtype)
    return jnp.einsum("bhlm,bmhk->blhk", weights if drop is None else drop(weights), v)


@pytest.mark.held_by(2)
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float32, 1e-5), (jnp.bfloat16, 3e-2)])
@pytest.mark.parametrize("drop", DROPS)
def test_attentions_gradients_are_those_of_its_formula(drop, dtype, tolerance):
    q, k, v = (
        draw_normal(B, L, H, K, dtype=dtype),
        draw_normal(B, M, H, K, seed=1, dtype=dtype),
        draw_normal(B, M, H, K, seed=2, dtype=dtype),
    )
    bias, mask = draw_normal(1, H, L, M, seed=3), make_causal_mask().make_dense(L, M)
    functions = (
        lambda q, k, v, bias: attend(q, k, v, mask=mask, bias=bias, drop=DROPS[drop]),
        lambda q, k, v, bias: plain_attention(q, k, v, mask, bias, DROPS[drop]),
    )
    results = (differentiate(function, (q, k, v, bias), seed=4) for function in functions)
    for found, expected in zip(*results, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(
            np.float32(found), np.float32(expected), atol=tolerance, rtol=tolerance
        )


def plain_mlp(params, x, act, drop):
    h = x @ params["up"]["kernel"] + params["up"]["bias"]
    h = (
        act(x @ params["gate"]["kernel"] + params["gate"]["bias"]) * h
        if "gate" in params
        else act(h)
    )
    return (h if drop is None else drop(h)) @ params["down"]["kernel"] + params["down"]["bias"]


@pytest.mark.held_by(2)
@pytest.mark.parametrize("module", [Mlp, GatedMlp])
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("act", [gelu, nn.relu])
def test_an_mlps_gradients_are_those_of_its_formula(module, rate, act):
    """With dropout the bits are those that the module's own `Dropout` draws, under its name."""
    mlp, x, rngs = (
        module(F, activation=act, dropout=partial(Dropout, rate, ops=OPS), ops=OPS),
        draw_normal(B, L, D),
        {"dropout": jax.random.key(5)},
    )
    params = jax.jit(mlp.init)(jax.random.key(0), x)["params"]
    drawn = []

    def watch_draws(following, args, kw, context):
        out = following(*args, **kw)
        if context.method_name == "bind_key":
            drawn.append(out)
        return out

    @jax.jit
    def compute_both(params, x, rngs):
        with nn.intercept_methods(watch_draws):
            y, back = jax.vjp(
                lambda params, x: mlp.apply({"params": params}, x, train=True, rngs=rngs), params, x
            )
        (drop,) = drawn
        assert (drop is None) == (rate == 0)
        plain, plain_back = jax.vjp(partial(plain_mlp, act=act, drop=drop), params, x)
        gradient = draw_normal(*y.shape, seed=4)
        return (y, plain), (back(gradient), plain_back(gradient))

    outputs, gradients = compute_both(params, x, rngs)
    np.testing.assert_allclose(*outputs, atol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5, rtol=1e-5), *gradients)


@pytest.mark.parametrize("module", [LayerNorm, RMSNorm])
def test_a_norms_gradients_are_differences(module):
    """If the input is bfloat16, so is its gradient; the parameters' are float32."""
    norm, x = module(ops=OPS), draw_normal(B, L, D) * 3
    params = {name: draw_normal(D, seed=6) for name in norm.init(jax.random.key(0), x)["params"]}
    weight = draw_normal(*x.shape, seed=7)
    compute_value = jax.jit(lambda params, x: (norm.apply({"params": params}, x) * weight).sum())
    value = lambda params, x: float(compute_value(params, x))  # noqa: E731
    of_params, of_x = jax.tree.map(np.asarray, jax.jit(jax.grad(compute_value, (0, 1)))(params, x))
    x, params = jax.tree.map(np.asarray, (x, params))
    for at in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-2
        np.testing.assert_allclose(
            (value(params, x + step) - value(params, x - step)) / 2e-2, of_x[at], atol=2e-3
        )
    for name, at in ((name, at) for name in params for at in range(D)):
        step = np.float32(1e-2) * (np.arange(D, dtype=np.int32) == at)
        moved = [params | {name: params[name] + sign * step} for sign in (1, -1)]
        np.testing.assert_allclose(
            (value(moved[0], x) - value(moved[1], x)) / 2e-2, of_params[name][at], atol=2e-3
        )
    of_params, of_x = jax.vjp(
        jax.jit(lambda params, x: norm.apply({"params": params}, x)),
        params,
        x.astype(jnp.bfloat16),
    )[1](weight.astype(jnp.bfloat16))
    assert of_x.dtype == jnp.bfloat16 and all(
        leaf.dtype == jnp.float32 for leaf in of_params.values()
    )


def count_residuals(function, *arguments):
    """Return the number of values that are saved for the backward pass and are not arguments."""
    leaves = jax.tree.leaves(jax.vjp(function, *arguments)[1])
    given = {id(leaf) for leaf in jax.tree.leaves(arguments)}
    return sum(leaf.size for leaf in leaves if id(leaf) not in given)


def test_attention_saves_one_number_per_pair():
    q, k, v = (
        draw_normal(B, L, H, K),
        draw_normal(B, M, H, K, seed=1),
        draw_normal(B, M, H, K, seed=2),
    )
    found = count_residuals(lambda q, k, v: attend(q, k, v, drop=DROPS["dropped"]), q, k, v)
    assert B * H * L * M <= found < 1.5 * B * H * L * M
    plain = count_residuals(
        lambda q, k, v: plain_attention(q, k, v, True, 0.0, DROPS["dropped"]), q, k, v
    )
    assert plain >= 2 * B * H * L * M


@pytest.mark.parametrize(("module", "arrays"), [(Mlp, 1), (GatedMlp, 2)])
def test_an_mlp_saves_its_activations_input(module, arrays):
    x = draw_normal(64, L, D)
    mlp = module(F, activation=gelu, dropout=partial(Dropout, 0.5, ops=OPS), ops=OPS)
    params = mlp.init(jax.random.key(0), x)
    found = count_residuals(
        lambda params, x: mlp.apply(params, x, train=True, rngs={"dropout": jax.random.key(5)}),
        params,
        x,
    )
    assert arrays * 64 * L * F <= found < (arrays + 0.5) * 64 * L * F


@pytest.mark.parametrize("module", [LayerNorm, RMSNorm])
def test_a_norm_saves_only_its_input(module):
    x = draw_normal(64, L, D)
    params = module().init(jax.random.key(0), x)
    assert (
        count_residuals(module(ops=OPS).apply, params, x)
        == 0
        < count_residuals(module().apply, params, x)
    )


def test_the_same_weights_are_dropped_on_both_ways():
    """Otherwise the gradient would not be the difference; another key drops other values."""
    x = draw_normal(B, 16, 8)
    attention = Attention(2, dropout=partial(Dropout, 0.5, ops=OPS), ops=OPS)
    params = jax.jit(attention.init)(jax.random.key(0), x)
    value = jax.jit(
        lambda x, key: attention.apply(params, x, train=True, rngs={"dropout": key}).sum()
    )
    compute_gradient = jax.jit(jax.grad(value))
    step = 1e-2 * draw_normal(*x.shape, seed=3)
    for key in (jax.random.key(1), jax.random.key(2)):
        slope = (value(x + step, key) - value(x - step, key)) / 2
        np.testing.assert_allclose(
            (compute_gradient(x, key) * step).sum(), slope, rtol=2e-2, atol=1e-5
        )
    assert value(x, jax.random.key(1)) != value(x, jax.random.key(2))


def test_an_activation_saves_its_input_only():
    """The gradients equal finite differences; in bfloat16 they are computed in float32 and rounded
    once.
    """
    x = draw_normal(4, 8) * 2
    exact = lambda x: 0.5 * x * (1 + math.erf(x / 2**0.5))  # noqa: E731
    by_tanh = lambda x: 0.5 * x * (1 + math.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))  # noqa: E731
    for act, formula in ((gelu, exact), (gelu_tanh, by_tanh)):
        act = recompute_in_backward(act)
        y, back = jax.vjp(act, x)
        assert sum(leaf.size for leaf in jax.tree.leaves(back)) == x.size
        (slope,) = back(jnp.ones_like(y))
        expected = [(formula(float(a) + 1e-3) - formula(float(a) - 1e-3)) / 2e-3 for a in x.ravel()]
        np.testing.assert_allclose(slope.ravel(), expected, atol=1e-5)
        narrow, back = jax.vjp(act, x.astype(jnp.bfloat16))
        wide, wide_back = jax.vjp(act, x.astype(jnp.bfloat16).astype(jnp.float32))
        np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=2**-8)
        np.testing.assert_allclose(
            back(narrow)[0].astype(jnp.float32),
            wide_back(narrow.astype(jnp.float32))[0],
            rtol=2**-8,
        )


# ---- against the plain operations ------------------------------------------------


def assert_same(function, plain, arguments, tolerance=2e-6):
    """Compare values and all gradients of two functions, relative to the largest value of each
    array.
    """
    results = (differentiate(each, arguments, seed=9) for each in (function, plain))
    for found, expected in zip(*results, strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max(), rtol=0)


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (gelu, [(B, L, F)]),
        (gelu_tanh, [(B, L, F)]),
        (nn.relu, [(B, L, F)]),
        (partial(apply_layer_norm, epsilon=1e-6), [(B, L, F), (F,), (F,)]),
        (partial(apply_rms_norm, epsilon=1e-6), [(B, L, F), (F,)]),
    ],
)
def test_recomputation_equals_the_plain_function(function, shapes):
    arguments = [draw_normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    assert_same(OPS.recompute(function), PLAIN.recompute(function), arguments)


def test_repeat_bias_is_the_plain_broadcast():
    assert_same(
        lambda bias: repeat_bias(bias, B),
        lambda bias: jnp.broadcast_to(bias, (B, H, L, M)),
        [draw_normal(1, H, L, M)],
    )


@pytest.mark.parametrize("num_biases", [1, B])
def test_a_bias_of_all_rows_is_summed_by_a_product_on_a_cpu(num_biases):
    """XLA's CPU compiler takes 40 times as long for the sum over 16 rows of [8, 128, 128]."""

    def lower_gradient(platform):
        q, bias = draw_normal(B, L, H, K), draw_normal(num_biases, H, L, L)
        gradient = jax.jit(jax.grad(lambda bias: attend(q, q, q, bias=bias).sum()))
        return gradient.trace(bias).lower(lowering_platforms=(platform,)).as_text()

    sum_over_rows = rf"stablehlo.reduce\(.*dimensions = \[0\].*tensor<{B}x{H}x{L}x{L}xf32>"
    product = f"tensor<1x{B}xf32>, tensor<{B}x{H * L * L}xf32>"
    assert not re.search(sum_over_rows, lower_gradient("cpu"))
    assert (product in lower_gradient("cpu")) == (num_biases == 1)
    assert bool(re.search(sum_over_rows, lower_gradient("tpu"))) == (num_biases == 1)
    assert product not in lower_gradient("tpu")


@pytest.mark.parametrize("drop", ["kept", "dropped", "shared"])
def test_average_values_is_the_plain_one(drop):
    arguments = draw_normal(B, H, L, M) * 3, draw_normal(B, M, H, K, seed=1)
    assert_same(
        lambda scores, v: average_values(scores, v, DROPS[drop]),
        lambda scores, v: plain_average(scores, v, DROPS[drop]),
        arguments,
    )
