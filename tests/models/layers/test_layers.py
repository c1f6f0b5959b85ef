"""The shared layers equal their formulas, in both float types, edge cases included."""

import math
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.attention import Attention
from models.layers.dropout import Dropout
from models.layers.linear import FAN_IN, TRUNCATED, Dense, Embed
from models.layers.masks import make_causal_mask, make_padding_mask
from models.layers.mlp import GatedMlp, Mlp, gelu, gelu_tanh
from models.layers.norms import LayerNorm, RMSNorm
from models.layers.ops import PLAIN, attend
from models.layers.stack import Stack
from models.layers.wiring import PostNormLayer, PreNormLayer, SandwichLayer

KEY = jax.random.key(0)


def draw_normal(*shape, seed=0, dtype=jnp.float32):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def run_module(module, params, *inputs, **how):
    """Return what one compiled program of a module computes."""
    return jax.jit(partial(module.apply, **how))(params, *inputs)


def init_module(module, *inputs):
    """Return the variables of a module by one compiled program, as arrays of NumPy."""
    return jax.device_get(jax.jit(module.init)(KEY, *inputs))


def run_attend(q, k, v, mask=None, **how):
    """Return `attend` of one compiled program."""
    return jax.jit(lambda *read: attend(*read[:3], mask=read[3], **how))(q, k, v, mask)


def attend_slowly(q, k, v, mask, bias, scale, cap=np.inf):
    """Compute the formula of section 3.2.1 in float64, one query at a time."""
    q, k, v, bias = (np.asarray(x, np.float64) for x in (q, k, v, bias))
    B, L, H, K = q.shape
    mask, bias = (
        np.broadcast_to(mask, (B, H, L, k.shape[1])),
        np.broadcast_to(bias, (B, H, L, k.shape[1])),
    )
    o = np.zeros((B, L, H, K))
    for b, length, h in np.ndindex(B, L, H):
        scores = scale * k[b, :, h] @ q[b, length, h]
        scores = (scores if cap == np.inf else cap * np.tanh(scores / cap)) + bias[b, h, length]
        weights = np.where(mask[b, h, length], np.exp(scores - scores.max()), 0)
        o[b, length, h] = weights / weights.sum() @ v[b, :, h]
    return o


# ---- attention -------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, 1.0])
def test_attend_is_the_formula(scale):
    q, k, v = (
        draw_normal(2, 5, 3, 4),
        draw_normal(2, 7, 3, 4, seed=1),
        draw_normal(2, 7, 3, 4, seed=2),
    )
    bias = draw_normal(1, 3, 5, 7, seed=3)
    mask = make_padding_mask(np.arange(7)[None] < np.array([[7], [4]]))
    expected = attend_slowly(
        q, k, v, mask.make_dense(5, 7), bias, 4**-0.5 if scale is None else scale
    )
    found = run_attend(q, k, v, mask, bias=bias, scale=scale)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_a_soft_cap_bounds_the_scaled_scores_before_the_bias():
    q, k, v = (3 * draw_normal(2, 5, 3, 4, seed=seed) for seed in range(3))
    bias, mask = draw_normal(1, 3, 5, 5, seed=3), make_causal_mask()
    expected = attend_slowly(q, k, v, mask.make_dense(5, 5), bias, 4**-0.5, cap=1.5)
    found = run_attend(q, k, v, mask, bias=bias, soft_cap=1.5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - run_attend(q, k, v, mask, bias=bias)).max() > 0.1


def test_attend_softmax_is_float32_under_bfloat16():
    """Scores of a few tens: rounded to bfloat16 they would be off by up to 0.1 each."""
    q, k, v = ((6 * draw_normal(1, 4, 2, 16, seed=i)).astype(jnp.bfloat16) for i in range(3))
    o = run_attend(q, k, v)
    exact = attend_slowly(q, k, v, True, 0.0, 0.25)
    assert o.dtype == jnp.bfloat16
    np.testing.assert_allclose(
        np.float32(o), exact, atol=0.06
    )  # half a unit of 1/8, for values up to 20


def test_attention_without_keys_is_finite():
    """A row may be padding only: its loss has weight 0, but 0 times NaN would be NaN."""
    q, k, v = (
        draw_normal(2, 3, 1, 4),
        draw_normal(2, 3, 1, 4, seed=1),
        draw_normal(2, 3, 1, 4, seed=2),
    )
    mask = make_padding_mask(jnp.array([[True, True, False], [False, False, False]]))

    def first_row(q, k, v):
        return (attend(q, k, v, mask=mask, bias=-1e9 * jnp.ones((1, 1, 3, 3)))[0] ** 2).sum()

    assert np.isfinite(run_attend(q, k, v, mask)).all()
    for grad in jax.jit(jax.grad(first_row, argnums=(0, 1, 2)))(q, k, v):
        assert np.isfinite(grad).all() and not np.array(grad)[1].any()


def test_attend_takes_masks_pair_by_pair_too():
    q, k, v = (draw_normal(1, 4, 2, 8, seed=i) for i in range(3))
    np.testing.assert_array_equal(
        run_attend(q, k, v, np.array(make_causal_mask().make_dense(4, 4))),
        run_attend(q, k, v, make_causal_mask()),
    )


def test_attention_reads_memory_and_keeps_its_types():
    attention = Attention(2, head_width=3)
    x, memory = draw_normal(1, 4, 8), draw_normal(1, 6, 8, seed=1)
    params = init_module(attention, x, memory)
    assert jax.tree.map(jnp.shape, params["params"]) == {
        "query": {"kernel": (8, 2, 3), "bias": (2, 3)},
        "key": {"kernel": (8, 2, 3), "bias": (2, 3)},
        "value": {"kernel": (8, 2, 3), "bias": (2, 3)},
        "out": {"kernel": (2, 3, 8), "bias": (8,)},
    }
    run = jax.jit(attention.apply)
    one, other = run(params, x, memory), run(params, x, -memory)
    assert one.shape == x.shape and not np.allclose(one, other)
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x, memory))
    assert jax.eval_shape(attention.apply, *low).dtype == jnp.bfloat16


def test_attention_refuses_a_width_that_heads_do_not_divide():
    with pytest.raises(ValueError, match="width of 8 does not divide into 3 heads"):
        jax.eval_shape(Attention(3).init, KEY, draw_normal(1, 2, 8))


def test_attention_dropout_drops_weights_and_keeps_their_mean():
    """Values are all 1, so a head's output is the sum of its weights: 1 without dropout."""
    seen = []

    def note_dropout(q, k, v, *, drop=None, **settings):
        seen.append(drop)
        return attend(q, k, jnp.ones_like(v), drop=drop, **settings)

    attention = Attention(
        2, dropout=partial(Dropout, 0.25), ops=PLAIN._replace(attend=note_dropout)
    )
    x = draw_normal(8, 64, 8)
    params = init_module(attention, x)
    params["params"]["out"] = {
        "kernel": np.full((2, 4, 8), 0.125, np.float32),
        "bias": np.zeros(8, np.float32),
    }
    calm = run_module(attention, params, x)
    learn = jax.jit(lambda key: attention.apply(params, x, train=True, rngs={"dropout": key}))
    wild = np.array(learn(KEY))
    np.testing.assert_allclose(calm, 1.0, rtol=1e-5)
    assert seen[-2] is None and seen[-1] is not None
    assert wild.std() > 0.01 and abs(wild.mean() - 1) < 0.01
    assert not np.array_equal(wild, learn(jax.random.key(1)))


# ---- linear, norms, mlp ----------------------------------------------------------


def test_dense_over_two_dimensions():
    x = draw_normal(2, 5, 3, 4)
    dense = Dense(6, num_contracting_dims=2, kernel_init=FAN_IN)
    params = init_module(dense, x)
    kernel = params["params"]["kernel"]
    np.testing.assert_allclose(
        run_module(dense, params, x), np.einsum("blhk,hkd->bld", x, kernel), atol=1e-5
    )


@pytest.mark.parametrize(
    ("init", "deviation", "largest"), [(TRUNCATED, 0.02 * 0.87963, 0.04), (FAN_IN, 300**-0.5, 1.0)]
)
def test_initialisers(init, deviation, largest):
    """A normal truncated at two deviations has 0.8796 of its deviation; the fan-in of [30, 10, 400]
    over two axes is 300.
    """
    dense = Dense(400, num_contracting_dims=2, kernel_init=init)
    kernel = init_module(dense, draw_normal(1, 30, 10))["params"]["kernel"]
    assert kernel.shape == (30, 10, 400)
    assert abs(kernel.std() / deviation - 1) < 0.02 and abs(kernel).max() <= largest


def test_embed_unknown_id_is_nan_and_scores_are_float32():
    embed = Embed(5, 4)
    params = init_module(embed, np.array([0]))
    assert np.isnan(run_module(embed, params, np.array([5]))).all()
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    x = draw_normal(2, 4, dtype=jnp.bfloat16)
    scores = run_module(embed, low, x, method="attend")
    exact = np.asarray(x, np.float64) @ np.asarray(low["params"]["embedding"], np.float64).T
    assert (
        jax.eval_shape(embed.apply, low, np.array([1])).dtype == jnp.bfloat16
        and scores.dtype == jnp.float32
    )
    np.testing.assert_allclose(scores, exact, atol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_layer_norm_is_the_formula(offset):
    """The variance is right far from zero too, where a difference of two squares would lose it."""
    x, norm = draw_normal(3, 64) + np.float32(offset), LayerNorm(1e-12)
    params = {"params": {"scale": draw_normal(64, seed=1), "bias": draw_normal(64, seed=2)}}
    wide = np.asarray(x, np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)
    expected = expected * np.asarray(params["params"]["scale"]) + np.asarray(
        params["params"]["bias"]
    )
    np.testing.assert_allclose(
        run_module(norm, params, x), expected, atol=1e-5 if offset == 0 else 2e-3
    )


def test_rms_norm_takes_no_mean_away():
    x, norm = draw_normal(3, 64) + 2.0, RMSNorm(1e-6)
    params = {"params": {"scale": draw_normal(64, seed=1)}}
    expected = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + 1e-6) * params["params"]["scale"]
    np.testing.assert_allclose(run_module(norm, params, x), expected, atol=1e-5)
    shapes = jax.tree.map(jnp.shape, jax.eval_shape(norm.init, KEY, x))
    assert shapes == {"params": {"scale": (64,)}}


def test_an_rms_norm_adds_its_offset_to_the_scale():
    x, norm = draw_normal(3, 64), RMSNorm(offset=1.0)
    first = init_module(norm, x)
    assert not np.any(first["params"]["scale"])
    np.testing.assert_array_equal(
        run_module(norm, first, x), run_module(RMSNorm(), init_module(RMSNorm(), x), x)
    )
    half = jax.tree.map(lambda scale: scale + 0.5, first)
    np.testing.assert_allclose(
        run_module(norm, half, x), 1.5 * run_module(norm, first, x), atol=1e-6
    )


@pytest.mark.parametrize("norm", [LayerNorm(), RMSNorm()])
def test_norms_compute_in_float32_and_answer_in_the_inputs_type(norm):
    x = (draw_normal(4, 512) * 300).astype(
        jnp.bfloat16
    )  # the sum of squares needs more than 8 bits
    first = init_module(norm, x)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), first)
    y = run_module(norm, params, x)
    assert y.dtype == jnp.bfloat16
    exact = run_module(norm, first, x.astype(jnp.float32))
    np.testing.assert_allclose(np.float32(y), exact, rtol=2**-8)


def test_gelu_and_its_approximation():
    assert math.isclose(gelu(jnp.float32(1.0)), 0.5 * (1 + math.erf(2**-0.5)), rel_tol=1e-6)
    tanh = 0.5 * (1 + math.tanh((2 / math.pi) ** 0.5 * (1 + 0.044715)))
    assert math.isclose(gelu_tanh(jnp.float32(1.0)), tanh, rel_tol=1e-6)
    assert abs(gelu(jnp.float32(1.0)) - tanh) > 1e-4


def test_activations_are_computed_in_float32_and_rounded_once():
    x = (2 * draw_normal(4, 8)).astype(jnp.bfloat16)

    @partial(jax.jit, static_argnums=0)
    def differentiate(act, x, pulled):
        y, back = jax.vjp(act, x)
        return y, back(pulled)[0]

    for act in (gelu, gelu_tanh):
        y = np.array(jax.jit(act)(x))
        y, found = jax.device_get(differentiate(act, x, y))
        wide, exact = jax.device_get(differentiate(act, np.float32(x), np.float32(y)))
        assert y.dtype == jnp.bfloat16
        np.testing.assert_array_equal(y, wide.astype(jnp.bfloat16))
        np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))


def test_mlps_are_their_formulas():
    x = draw_normal(2, 3, 4)
    params = init_module(Mlp(6, activation=nn.relu), x)["params"]
    up, down = params["up"]["kernel"], params["down"]["kernel"]
    found = run_module(Mlp(6, activation=nn.relu), {"params": params}, x)
    np.testing.assert_allclose(found, np.maximum(x @ up, 0) @ down, atol=1e-6)
    gated = GatedMlp(6, activation=nn.relu, use_bias=False, kernel_init=FAN_IN)
    params = init_module(gated, x)["params"]
    gate, up, down = (params[name]["kernel"] for name in ("gate", "up", "down"))
    found = run_module(gated, {"params": params}, x)
    np.testing.assert_allclose(found, (np.maximum(x @ gate, 0) * (x @ up)) @ down, atol=1e-5)


# ---- wiring and depth ------------------------------------------------------------


class Add(nn.Module):
    """A sub-layer that adds a given value, to test the wiring alone."""

    value: float

    @nn.compact
    def __call__(self, x, *args, **kw):
        return jnp.full_like(x, self.value)


class Double(nn.Module):
    @nn.compact
    def __call__(self, x):
        return 2 * x


def test_the_residual_equations_of_the_layers():
    x = jnp.ones((1, 2, 4))
    parts = dict(attention=partial(Add, 3.0), mlp=partial(Add, 5.0), norm=Double)
    run = lambda layer: np.array(jax.jit(lambda: layer.apply({}, x, False))())  # noqa: E731
    post, pre = run(PostNormLayer(**parts)), run(PreNormLayer(**parts, cross=partial(Add, 7.0)))
    assert (post == 2 * (2 * (1 + 3) + 5)).all() and (pre == 1 + 3 + 7 + 5).all()
    sandwich = run(SandwichLayer(**parts, cross=partial(Add, 7.0)))
    assert (sandwich == 1 + 2 * 3 + 2 * 7 + 2 * 5).all()


class Layer(nn.Module):
    """x + drop(dense(x) + bias): a layer that is just enough to test depth."""

    @nn.compact
    def __call__(self, x, train, bias=0.0):
        y = nn.tanh(Dense(x.shape[-1], kernel_init=FAN_IN, name="dense")(x)) + bias
        return x + Dropout(0.5)(y, deterministic=not train)


def init_stack(stack, x):
    """Return the variables of a stack of `Layer`, as arrays of NumPy."""
    return jax.device_get(jax.jit(lambda x: stack.init(KEY, x, False))(x))


def outputs_and_gradients(params, x, bias, **kw):
    stack = Stack(Layer, 3, **kw)

    def compute_score(params, x, bias):
        return (stack.apply({"params": params}, x, False, bias=bias) ** 2).sum()

    return jax.jit(jax.value_and_grad(compute_score, argnums=(0, 1, 2)))(params, x, bias)


def test_stack_is_the_same_scanned_unrolled_and_rematerialised(unroll):
    x, bias = draw_normal(2, 3, 4), draw_normal(1, 3, 4, seed=5)
    params = init_stack(Stack(Layer, 3), x)["params"]
    assert jax.tree.map(jnp.shape, params) == {
        "layers": {"dense": {"kernel": (3, 4, 4), "bias": (3, 4)}}
    }
    flat = unroll({"stack": params}, {"stack": 3})["stack"]
    assert set(flat) == {"layer_0", "layer_1", "layer_2"}
    value, (of_params, of_x, of_bias) = outputs_and_gradients(params, x, bias)
    for scan, remat in ((True, True), (False, False), (False, True)):
        own = params if scan else flat
        found, (by_params, by_x, by_bias) = outputs_and_gradients(
            own, x, bias, scan=scan, remat=remat
        )
        np.testing.assert_allclose(found, value, rtol=1e-6)
        np.testing.assert_allclose(by_x, of_x, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(by_bias, of_bias, rtol=1e-5, atol=1e-6)
        expected = of_params if scan else unroll({"stack": of_params}, {"stack": 3})["stack"]
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), by_params, expected)


@pytest.mark.parametrize("scan", [True, False])
def test_stack_layers_begin_different_and_drop_differently(scan):
    x = jnp.zeros((1, 64, 4))
    stack = Stack(Layer, 2, scan=scan)
    params = init_stack(stack, x)["params"]
    leaves = [leaf for leaf in jax.tree.leaves(params) if leaf.any()]
    first, second = leaves[0] if scan else leaves
    assert not np.allclose(first, second)
    zero = jax.tree.map(np.zeros_like, params)
    y = jax.jit(lambda: stack.apply({"params": zero}, x, True, bias=1.0, rngs={"dropout": KEY}))()
    assert set(np.unique(y)) == {0.0, 2.0, 4.0}  # with one mask for both layers, never 2


class Twice(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return 2 * x


@pytest.mark.parametrize("scan", [True, False])
def test_stack_constrains_the_top_of_each_layer(scan):
    ops = PLAIN._replace(constrain=lambda x: x + 1)
    stack = Stack(Twice, 3, scan=scan, ops=ops)
    y = jax.jit(lambda: stack.apply({}, jnp.ones((1, 1, 1)), False))()
    assert y == 2 * (2 * (2 * (1 + 1) + 1) + 1)


@pytest.mark.parametrize("scan", [True, False])
def test_remat_computes_layers_again(scan):
    x = draw_normal(1, 2, 4)

    def print_jaxpr(remat):
        stack = Stack(Layer, 2, scan=scan, remat=remat)
        params = jax.eval_shape(lambda: stack.init(KEY, x, False))
        return str(
            jax.make_jaxpr(jax.grad(lambda params: stack.apply(params, x, False).sum()))(params)
        )

    assert "remat" in print_jaxpr(True) and "remat" not in print_jaxpr(False)
