"""Rates and weight decay by group, and rates by layer, equal runs with other settings."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from pretrain.config import Adafactor, AdamW, Lamb, Lion, Muon, StableAdamW
from pretrain.mesh.sharding import format_path
from pretrain.run import validate_run
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers import make_optimizer, make_run_optimizer
from pretrain.training.state import init_params

SHAPES = {
    "encoder/layers/mlp/up/kernel": (2, 8, 12),
    "encoder/layers/mlp_norm/scale": (2, 8),
    "token_embedding/embedding": (16, 8),
}


def draw(rng):
    """Return a nested tree of SHAPES."""
    tree = {}
    for path, shape in SHAPES.items():
        *folders, name = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = jnp.asarray(rng.standard_normal(shape), jnp.float32)
    return tree


def flatten(tree):
    return {format_path(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def train(config):
    """Return {path: array} after four updates; the gradients are clipped where they may be."""
    rng = np.random.default_rng(0)
    params, optimizer = draw(rng), make_optimizer(config, 10)
    state = optimizer.init(params)
    for _ in range(4):
        updates, state = optimizer.update(draw(rng), state, params)
        params = jax.tree.map(jnp.add, params, updates)
    return flatten(params)


@pytest.mark.held_by("AdamW", "Muon")
@pytest.mark.parametrize(
    "kind", [AdamW, StableAdamW, Lion, Lamb, Muon, Adafactor], ids=lambda kind: kind.__name__
)
def test_a_group_has_its_own_rate_and_decay(kind):
    base, factors = kind(learning_rate=0.1, warmup_steps=0), "0.5"
    embedding = dataclasses.replace(base, learning_rate=0.05)
    if kind is StableAdamW:
        base, embedding = (
            dataclasses.replace(config, decoupled=False) for config in (base, embedding)
        )
    if kind is not Adafactor:
        base = dataclasses.replace(base, weight_decay=0.5)
        embedding, factors = dataclasses.replace(embedding, weight_decay=0.1), "0.5:0.2"
    found = train(dataclasses.replace(base, groups=(f"token_*:{factors}", "mlp_norm/scale:3")))
    rest, embedding = train(base), train(embedding)
    norm = train(dataclasses.replace(base, learning_rate=0.3))
    expected = dict(zip(SHAPES, (rest, norm, embedding), strict=True))
    for path, leaf in found.items():
        np.testing.assert_allclose(leaf, expected[path][path], rtol=1e-4, atol=1e-5, err_msg=path)
        assert path == "encoder/layers/mlp/up/kernel" or np.abs(leaf - rest[path]).max() > 1e-2


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            ("token_embeding:0.1",),
            "'token_embeding' matches no parameter; the nearest is token_emb",
        ),
        (("mlp",), "groups=mlp: not PATTERN:RATE or PATTERN:RATE:DECAY"),
        (("mlp:-1",), "groups=mlp:-1: not PATTERN:RATE"),
        (("mlp:1:1:1",), "groups=mlp:1:1:1: not PATTERN:RATE"),
    ],
)
def test_a_wrong_group_is_an_error(groups, message):
    with pytest.raises(ConfigError, match=message):
        train(AdamW(groups=groups))


def test_adafactor_has_no_decay_to_change():
    with pytest.raises(ConfigError, match="groups=mlp:1:0: Adafactor has no weight decay"):
        Adafactor(groups=("mlp:1:0",))


@pytest.mark.parametrize("scan", [True, False], ids=["scanned", "unrolled"])
def test_lower_layers_learn_more_slowly(runs, scan):
    """The update of each parameter over the one without the decay of rates."""
    run = runs["classifier"]
    encoder = dataclasses.replace(run.model.encoder, scan=scan, depth=3)
    run = dataclasses.replace(run, model=dataclasses.replace(run.model, encoder=encoder))
    params = jax.jit(partial(init_params, build(run.model), run.data.objective, 0))()
    grads = jax.tree.map(jnp.ones_like, params)

    def update(layer_decay):
        optimizer = make_run_optimizer(
            dataclasses.replace(run, optimizer=AdamW(layer_decay=layer_decay, weight_decay=0.0))
        )
        return flatten(jax.jit(optimizer.update)(grads, optimizer.init(params), params)[0])

    whole, powers = update(1.0), {}
    for path, leaf in update(0.5).items():
        powers[path] = np.log2(whole[path] / leaf).reshape(leaf.shape[0], -1)
    for path, power in powers.items():
        if "/layers/" in path:
            expected = [[3], [2], [1]]
        elif "/layer_" in path:
            expected = 3 - int(path.partition("/layer_")[2][0])
        else:
            expected = 4 if "embedding" in path else 0
        np.testing.assert_allclose(power, np.broadcast_to(expected, power.shape), atol=1e-3)
    assert any("/layers/" in path for path in powers) == scan


def test_a_decay_of_rates_needs_the_layers_of_an_encoder(runs):
    for name, found in (("bert", "BertConfig"), ("electra", "ElectraConfig")):
        run = dataclasses.replace(runs[name], optimizer=AdamW(layer_decay=0.8))
        with pytest.raises(ConfigError, match=f"fine-tuned encoder .* a {found} is not one"):
            validate_run(run)
    with pytest.raises(ConfigError, match="layer_decay=0: it must be above 0 and at most 1"):
        AdamW(layer_decay=0.0)
