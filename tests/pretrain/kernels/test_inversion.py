"""A reversible stack that is inverted has the gradients of the plain one, in memory that does not
grow with its depth.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from models.layers.layer_layout import unstack_layers
from models.layers.ops import PLAIN
from pretrain.kernels.inversion import apply_reversible
from pretrain.kernels.model_hooks import OPS

CONFIG = ReformerConfig(
    vocab=50,
    width=24,
    depth=4,
    num_heads=3,
    head_width=5,
    mlp=40,
    mlp_chunk=7,
    dropout=0.2,
    layers=("local", "lsh"),
    hashing=Hashing(chunk=4, rounds=2, dropout=0.2),
    local=LocalChunks(chunk=4, dropout=0.2),
    axial_shape=(4, 8),
    axial_widths=(10, 14),
)
INVERTED = PLAIN._replace(apply_reversible=apply_reversible)
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 18)).astype(np.int32)
SEGMENTS = np.broadcast_to(1 + (np.arange(18) >= 7), (2, 18)).astype(np.int32)


def make_gradient(config, ops, tokens=TOKENS, segments=SEGMENTS):
    """Return a compiled function of the parameters: the loss and its gradients, with dropout."""
    model = build(config, ops=ops)

    def compute_loss(params):
        how = {"train": True, "rngs": {"dropout": jax.random.key(3)}}
        return jnp.square(model.apply({"params": params}, tokens, segments, **how)).mean()

    return jax.jit(jax.value_and_grad(compute_loss))


def draw_params(config):
    """Return parameters of which none is 0 or 1, float32."""
    shapes = jax.eval_shape(build(config).init, jax.random.key(0), TOKENS)["params"]
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: jnp.asarray(0.3 * rng.standard_normal(leaf.shape, np.float32)), shapes
    )


@pytest.fixture(scope="module")
def plain():
    """Return parameters, and the loss and gradients that JAX derives from the equations."""
    params = draw_params(CONFIG)
    return params, make_gradient(CONFIG, PLAIN)(params)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    "ops", [INVERTED, OPS._replace(drop=PLAIN.drop)], ids=["alone", "trainer's"]
)
def test_gradients_are_those_of_the_equations_with_dropout(plain, ops):
    params, (expected, expected_grads) = plain
    found, grads = make_gradient(CONFIG, ops)(params)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(expected_grads), strict=True):
        assert np.abs(b).max() > 1e-5
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


@pytest.mark.more
def test_layers_that_are_not_scanned_have_the_same_gradients(plain):
    params, (expected, expected_grads) = plain
    unrolled = make_gradient(dataclasses.replace(CONFIG, scan=False), INVERTED)
    found, grads = unrolled(unstack_layers(params))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for a, b in zip(
        jax.tree.leaves(grads), jax.tree.leaves(unstack_layers(expected_grads)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


def test_a_layer_is_inverted_only_where_the_model_asks_for_it(plain):
    calls = []
    spy = PLAIN._replace(apply_reversible=lambda *args: calls.append(1) or apply_reversible(*args))
    for remat in (True, False):
        jax.eval_shape(make_gradient(dataclasses.replace(CONFIG, remat=remat), spy), plain[0])
        assert len(calls) == 1


def test_the_memory_does_not_grow_with_the_depth():
    """Temporaries of the compiled gradient, whose parameters and gradients are arguments and
    results: each of 28 further layers adds its buckets, and without inversion more than the streams.
    """
    L = 256
    tokens = np.zeros((1, L), np.int32)

    def count_bytes(depth, ops):
        config = dataclasses.replace(
            CONFIG,
            depth=depth,
            layers=("lsh",),
            mlp_chunk=None,
            width=32,
            axial_shape=(16, 16),
            axial_widths=(8, 24),
            hashing=Hashing(chunk=32, rounds=2, dropout=0.2),
        )
        shapes = jax.eval_shape(build(config).init, jax.random.key(0), tokens)["params"]
        compiled = make_gradient(config, ops, tokens, None).lower(shapes).compile()
        params = sum(4 * math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
        return compiled.memory_analysis().temp_size_in_bytes, params

    (shallow, _), (deep, _) = (count_bytes(depth, INVERTED) for depth in (4, 32))
    (plain_shallow, _), (plain_deep, _) = (count_bytes(depth, PLAIN) for depth in (4, 32))
    buckets, streams = 4 * 3 * 2 * L, 2 * 4 * 32 * L
    assert (deep - shallow) / 28 < 1.1 * buckets
    assert (plain_deep - plain_shallow) / 28 > streams
