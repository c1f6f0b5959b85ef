"""ALBERT as in its paper: sizes, one shared layer at any depth, factorised embeddings, otherwise
BERT.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.albert import AlbertConfig
from models.layers.masks import make_padding_mask

LENGTHS = np.array([12, 7, 4])
VALID = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(VALID, np.random.default_rng(0).integers(1, 50, (3, 12)), 0).astype(np.int32)
SEGMENTS = (VALID & (np.arange(12) >= 3)).astype(np.int32)


def make_shapes(config):
    ids = jnp.ones((1, 2), jnp.int32)
    return jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))["params"]


def count_parameters(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("scan", [True, False])
def test_depth_costs_no_parameters(scan):
    """Section 3.1, cross-layer parameter sharing: the same shapes for any depth, and no axis of
    layers.
    """
    one, many = (
        make_shapes(AlbertConfig(width=64, num_heads=4, mlp=128, depth=depth, scan=scan))
        for depth in (1, 30)
    )
    assert jax.tree.map(lambda leaf: leaf.shape, one) == jax.tree.map(lambda leaf: leaf.shape, many)
    assert list(one["albert"]["encoder"]) == ["layer"]


def test_words_in_few_dimensions():
    """Section 3.1, factorised embedding: V * E + E * H instead of V * H; E does not grow with H."""
    narrow, wide = (
        make_shapes(AlbertConfig(width=width, num_heads=4, mlp=128))["albert"]
        for width in (64, 640)
    )
    assert (
        narrow["embeddings"] == wide["embeddings"]
        and count_parameters(wide["embeddings"]["token_embedding"]) == 30000 * 128
    )
    assert count_parameters(wide["embedding_projection"]) == 128 * 640 + 640


def test_the_one_layer_is_applied_again_and_again(make, tiny_configs):
    """Depth 3 is depth 1 applied three times."""
    config = dataclasses.replace(tiny_configs["albert"], depth=3)
    model, params = make(config)
    encode = jax.jit(partial(model.apply, method="encode"))
    hidden, _ = encode({"params": params}, TOKENS, VALID, SEGMENTS)
    once = build(dataclasses.replace(config, depth=1))

    def apply_encoder(module, x_BLD):
        return module.albert.encoder(x_BLD, False, mask=make_padding_mask(VALID))

    def embed(module):
        return module.albert.embedding_projection(module.albert.embeddings(TOKENS, SEGMENTS, False))

    x_BLD = jax.jit(partial(model.apply, method=embed))({"params": params})
    step = jax.jit(partial(once.apply, method=apply_encoder))
    for _ in range(config.depth):
        x_BLD = step({"params": params}, x_BLD)
    np.testing.assert_allclose(x_BLD, hidden, atol=1e-5)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_every_use_of_the_layer_draws_its_own_dropout(make, tiny_configs, scan):
    """The layers share weights but not dropout masks: with the same mask, the second layer would
    not change the first one's result.
    """
    config = dataclasses.replace(
        tiny_configs["albert"], depth=2, dropout=0.5, attention_dropout=0.0, scan=scan
    )
    _, params = make(dataclasses.replace(config, scan=True))
    layer = jax.tree.map(np.zeros_like, jax.device_get(params["albert"]["encoder"]["layer"]))
    layer["mlp"]["down"]["bias"] += 1  # adds 1 to each dimension that is not dropped
    for norm in ("attention_norm", "mlp_norm"):
        layer[norm]["scale"] += 1
    encoder = {"params": {"albert": {"encoder": {"layer": layer}}}}

    def encode_zeros(module):
        return module.albert.encoder(jnp.zeros((1, 4, 24)), True)

    one, two = (
        jax.jit(
            partial(build(dataclasses.replace(config, depth=depth)).apply, method=encode_zeros)
        )(encoder, rngs={"dropout": jax.random.key(3)})
        for depth in (1, 2)
    )
    assert not np.allclose(one, two, atol=1e-2)
