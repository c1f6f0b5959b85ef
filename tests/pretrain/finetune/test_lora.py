"""LoRA: the factors beside the kernels, their gradients, and a model that stays as it is."""

import dataclasses
import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config.classifier import ClassifierConfig
from models.config.gpt2 import Gpt2Config
from models.config.textcnn import TextCnnConfig
from models.layers.layer_layout import flatten_params, match_layout, unstack_layers
from models.layers.linear import Dense
from models.layers.lora import merge_factors
from pretrain.config import Mesh, override_run, validate_run
from pretrain.mesh.sharding import format_path, make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers.factors import add_dropped_product, add_factors
from pretrain.training.optimizers.frozen import count_trained
from pretrain.training.program import make_program
from tests.pretrain.conftest import make_tiny

RANK, ALPHA = 2, 8.0
LORA = [
    f"train.lora_rank={RANK}",
    f"train.lora_alpha={ALPHA:g}",
    "train.lora_targets=attention,mlp",
]


@pytest.fixture
def run(runs):
    """Return a classifier's run with LoRA."""
    return override_run(runs["classifier"], [*LORA, "optimizer.weight_decay=0.1"])


def draw_like(params, seed=0):
    """Return random values for every leaf, so that no B is 0."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: rng.normal(0, 0.1, leaf.shape).astype(np.float32), params)


def train(run, batches, mesh=None, params=None):
    """Return (first parameters, last ones, metrics of the last step, optimizer's state)."""
    mesh = mesh or make_mesh(Mesh(1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        state = program.init()
        if params is not None:
            placed = jax.device_put(
                match_layout(params, state.params), program.state_shardings.params
            )
            state = state.replace(params=placed)
        first = jax.device_get(state.params)
        for batch in batches:
            state, metrics = program.train_step(
                state, jax.device_put(batch, program.batch["token_ids"].sharding)
            )
    return first, *jax.device_get((state.params, metrics, state.optimizer))


def is_trained(path):
    return path.startswith("classifier/") or "/pooler/" in path or "lora_" in path


# ---- factors -------------------------------------------------------------------


def test_a_merged_kernel_is_the_formula():
    """By NumPy, one matrix at a time: a scanned stack, a layer, two axes, and a shared A."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    stack = {
        "attention": {
            "lora_a": draw(3, 6, 2),  # of query and value, which are one matrix elsewhere
            "query": {"kernel": draw(3, 6, 2, 4), "lora_b": draw(3, 2, 2, 4)},
            "key": {"kernel": draw(3, 6, 2, 4)},
            "value": {"kernel": draw(3, 6, 2, 4), "lora_b": draw(3, 2, 2, 4)},
            "out": {
                "kernel": draw(3, 2, 4, 6),
                "lora_a": draw(3, 2, 4, 2),
                "lora_b": draw(3, 2, 6),
            },
        }
    }
    last = {"mlp": {"up": {"kernel": draw(6, 5), "lora_a": draw(6, 2), "lora_b": draw(2, 5)}}}
    merged = merge_factors({"layers": stack, "last": last, "norm": {"scale": draw(6)}}, scale=1.5)
    attention, found = stack["attention"], merged["layers"]["attention"]
    for i in range(3):
        for part in ("query", "value"):
            product = attention["lora_a"][i] @ attention[part]["lora_b"][i].reshape(2, 8)
            expected = attention[part]["kernel"][i].reshape(6, 8) + 1.5 * product
            np.testing.assert_allclose(found[part]["kernel"][i].reshape(6, 8), expected, rtol=1e-5)
        out = attention["out"]
        expected = out["kernel"][i].reshape(8, 6) + 1.5 * (
            out["lora_a"][i].reshape(8, 2) @ out["lora_b"][i]
        )
        np.testing.assert_allclose(
            found["out"]["kernel"][i].reshape(8, 6), expected, rtol=1e-4, atol=1e-6
        )
    up = last["mlp"]["up"]
    np.testing.assert_allclose(
        merged["last"]["mlp"]["up"]["kernel"], up["kernel"] + 1.5 * up["lora_a"] @ up["lora_b"], rtol=1e-4, atol=1e-6
    )  # fmt: skip
    np.testing.assert_array_equal(found["key"]["kernel"], attention["key"]["kernel"])
    assert not [path for path in flatten_params(merged) if "lora" in path]


def check_beginning(leaves):
    """A is uniform with the bound 1/sqrt(inputs), B is 0, and each layer has its own, as in `peft`."""
    firsts = {path: leaf for path, leaf in leaves.items() if path.endswith("lora_a")}
    assert len(firsts) == 6
    for path, leaf in firsts.items():
        bound = 1 / np.sqrt(64 if "down" in path else 32)
        assert bound * 0.9 < np.abs(leaf).max() <= bound, path
        assert np.abs(leaf.std() - bound / np.sqrt(3)) < bound / 6
        assert not np.array_equal(leaf[0], leaf[1])
    assert all(not np.any(leaf) for path, leaf in leaves.items() if path.endswith("lora_b"))


def test_kernels_that_are_one_matrix_elsewhere_share_an_a(run):
    """`c_attn` of GPT-2 is one matrix of `peft`; its other matrices are their own."""
    gpt2 = ClassifierConfig(encoder=make_tiny(Gpt2Config), labels=("a", "b"))
    own = override_run(
        dataclasses.replace(run, model=gpt2), ["train.lora_targets=query,value,out,up"]
    )
    paths = abstract_paths(own)
    layers = "encoder/decoder/layers"
    assert {path.removeprefix(layers) for path in paths if "lora_a" in path} == {
        "/attention/lora_a", "/attention/out/lora_a", "/mlp/up/lora_a"
    }  # fmt: skip
    assert {path.removeprefix(layers) for path in paths if "lora_b" in path} == {
        *(f"/attention/{part}/lora_b" for part in ("query", "value", "out")), "/mlp/up/lora_b"
    }  # fmt: skip


def abstract_paths(run):
    """Return the paths of a run's parameters."""
    mesh = make_mesh(Mesh(1), jax.devices()[:1])
    return list(flatten_params(make_program(run, mesh).abstract_state.params))


# ---- training ------------------------------------------------------------------


def test_the_model_stays_and_has_no_state(run, random_batch):
    """With weight decay: every other bit stays, every factor and the head change, and the moments
    are of these alone.
    """
    first, last, metrics, optimizer = train(run, [random_batch(run, seed) for seed in range(3)])
    assert metrics["skipped"] == 0
    before, after = flatten_params(first), flatten_params(last)
    check_beginning(before)
    for path, leaf in before.items():
        assert np.any(leaf != after[path]) == is_trained(path), path
    moments = [leaf for leaf in jax.tree.leaves(optimizer) if np.ndim(leaf)]
    trained = sum(leaf.size for path, leaf in before.items() if is_trained(path))
    assert sum(leaf.nbytes for leaf in moments) == 2 * 4 * trained
    assert count_trained(run, first) == trained < 0.3 * sum(leaf.size for leaf in before.values())


def test_gradients_are_those_of_the_formula(run, random_batch):
    """One step of SGD with the rate 1 against autodiff of the loss of W + scale * A B, written out
    layer by layer; the norm counts what is trained alone.
    """
    run = override_run(run, ["train.microbatches=2", "optimizer.max_grad_norm=0"])
    mesh, batch = make_mesh(Mesh(1), jax.devices()[:1]), random_batch(run)
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        params = draw_like(program.abstract_state.params)

        def compute_loss(trained):
            leaves = flatten_params(params) | trained
            for path in [path for path in leaves if path.endswith("lora_b")]:
                b, a = leaves.pop(path), leaves.pop(path.replace("lora_b", "lora_a"))
                kernel = path.replace("lora_b", "kernel")
                shape = leaves[kernel].shape
                products = [
                    a[i].reshape(-1, RANK) @ b[i].reshape(RANK, -1) * (ALPHA / RANK)
                    for i in range(2)
                ]
                leaves[kernel] = leaves[kernel] + jnp.stack(products).reshape(shape)
            tree = match_layout(leaves, jax.eval_shape(lambda: merge_factors(params, 1.0)))
            sums = program.loss.sum_batch(
                program.model, tree, batch, train=True, dropout_key=jax.random.key(0)
            )
            weights = program.loss.sum_weights(batch)
            return program.loss.compute_loss(
                {name: sums[name] / weights[name] for name in program.loss.loss_terms}
            )

        trained = {path: leaf for path, leaf in flatten_params(params).items() if is_trained(path)}
        expected = jax.jit(jax.grad(compute_loss))(jax.tree.map(jnp.asarray, trained))
        state = program.init().replace(
            params=jax.device_put(params, program.state_shardings.params)
        )
        state, metrics = program.train_step(
            state, jax.device_put(batch, program.batch["token_ids"].sharding)
        )
    mu = next(
        leaf for leaf in jax.tree.leaves(state.optimizer, is_leaf=lambda node: hasattr(node, "mu"))
        if hasattr(leaf, "mu")
    ).mu  # fmt: skip
    found = {
        format_path(keys): leaf / (1 - run.optimizer.beta1)
        for keys, leaf in jax.tree_util.tree_leaves_with_path(mu)
    }
    assert found.keys() == expected.keys()
    for path, gradient in expected.items():
        scale = float(np.abs(gradient).max())
        np.testing.assert_allclose(found[path], gradient, atol=1e-5 + 1e-4 * scale, err_msg=path)
    norm = np.sqrt(sum(float(np.square(gradient).sum()) for gradient in expected.values()))
    np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-4)


@pytest.mark.parametrize("rate", [0.25, 0.0])
def test_dropout_is_for_the_inputs_of_the_products(rate):
    """With A and B the identity, the output is x @ kernel + scale * drop(x): the mask is visible."""
    dense, scale = Dense(16, use_bias=False), 1.5
    x, kernel = jax.random.normal(jax.random.key(0), (4, 50, 16)), jnp.ones((16, 16))
    params = {"kernel": kernel, "lora_a": jnp.eye(16), "lora_b": jnp.eye(16)}
    with nn.intercept_methods(functools.partial(add_dropped_product, rate, scale)):
        y, again = (
            dense.apply({"params": params}, x, rngs={"dropout": jax.random.key(seed)})
            for seed in (1, 2)
        )
    factors = (y - x @ kernel) / (scale * x)
    stays = np.asarray(jnp.abs(factors) > 0.5)
    np.testing.assert_allclose(factors, stays / (1 - rate), atol=1e-2)
    assert abs(stays.mean() - (1 - rate)) < 0.05  # 2.1 standard deviations are 0.016
    assert np.array_equal(y, again) == (rate == 0)
    assert (len(np.unique(stays.reshape(-1, 16), axis=0)) > 100) == (rate > 0)  # its own per token


def test_dropped_products_have_the_gradients_of_merged_kernels(run, random_batch):
    """At so low a rate that nothing is dropped: products beside the maps, and products in them."""
    batches = [random_batch(run, seed) for seed in range(2)]
    merged = train(run, batches)
    beside = train(override_run(run, ["train.lora_dropout=1e-9"]), batches)
    for path, leaf in flatten_params(merged[1]).items():
        np.testing.assert_allclose(flatten_params(beside[1])[path], leaf, atol=3e-4, err_msg=path)
        if not is_trained(path):
            np.testing.assert_array_equal(flatten_params(beside[1])[path], leaf, err_msg=path)
    np.testing.assert_allclose(beside[2]["gradient_norm"], merged[2]["gradient_norm"], rtol=1e-3)


@pytest.mark.more
def test_devices_drop_the_same(run, random_batch):
    batches, mesh = [random_batch(run)] * 2, make_mesh(Mesh(8))
    _, whole, *_ = train(run, batches)
    run = override_run(run, ["train.lora_dropout=0.5"])
    (_, alone, *_), (_, last, *_) = train(run, batches), train(run, batches, mesh)
    undropped, dropped = flatten_params(whole), flatten_params(alone)
    assert max(np.abs(leaf - dropped[path]).max() for path, leaf in undropped.items()) > 1e-3
    for path, leaf in flatten_params(alone).items():
        np.testing.assert_allclose(flatten_params(last)[path], leaf, atol=3e-4, err_msg=path)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sizes", [(2, 2, 2), (8, 1, 1), (1, 8, 1)], ids=str)
def test_devices_change_nothing(run, random_batch, sizes):
    batches = [random_batch(run, seed) for seed in range(2)]
    alone, mesh = train(run, batches), make_mesh(Mesh(*sizes), jax.devices()[:8])
    first, last, *_ = train(run, batches, mesh)
    for path, leaf in flatten_params(alone[0]).items():
        np.testing.assert_allclose(flatten_params(first)[path], leaf, atol=1e-7, err_msg=path)
    for path, leaf in flatten_params(alone[1]).items():
        np.testing.assert_allclose(flatten_params(last)[path], leaf, atol=3e-4, err_msg=path)


@pytest.mark.more
def test_unrolled_layers_train_like_scanned_ones(run, random_batch):
    """From the same kernels; the factors begin with the same bits."""
    batches = [random_batch(run, seed) for seed in range(2)]
    unrolled = override_run(run, ["model.encoder.scan=false"])
    scanned_first, scanned_last, *_ = train(run, batches)
    first, last, *_ = train(unrolled, batches, params=scanned_first)
    drawn = flatten_params(
        jax.device_get(jax.jit(lambda tree: add_factors(unrolled, tree))(drop_factors(first)))
    )
    for path, leaf in flatten_params(unstack_layers(scanned_first)).items():
        np.testing.assert_array_equal(drawn[path], leaf, err_msg=path)
    for path, leaf in flatten_params(unstack_layers(scanned_last)).items():
        np.testing.assert_allclose(flatten_params(last)[path], leaf, atol=3e-4, err_msg=path)


def drop_factors(tree):
    if not isinstance(tree, dict):
        return tree
    return {name: drop_factors(part) for name, part in tree.items() if "lora" not in name}


# ---- refusals ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.lora_rank=0"], "Train.lora_rank is 0; it must be at least 1"),
        (["train.lora_targets=()"], "train.lora_rank=2: train.lora_targets is empty"),
        (["train.trainable_layers=1"], "train.lora_rank=2 and train.trainable_layers=1 both say"),
        (["train.lora_dropout=1"], "Train.lora_dropout is 1.0; it must be at least 0 and below 1"),
        (["train.lora_rank=none", "train.lora_dropout=0.1"], "train.lora_dropout=0.1: the run has no LoRA"),
        (["train.ema_decay=0.9"], "train.lora_rank=2: train.ema_decay=0.9 would hold"),
        (["optimizer=muon"], "train.lora_rank=2: optimizer=muon is for whole matrices"),
        (["train.lora_rank=33"], "train.lora_rank=33: encoder/bert/encoder/layers/attention/key/"
            "kernel has at most rank 32"),
        (["train.lora_targets=query,gate"], "train.lora_targets=gate: a BertConfig has no such matrix in "
            "its layers; give train.lora_rank=none, or targets among key,out,query,value,down,up"),
    ],
)  # fmt: skip
def test_settings_that_contradict_lora_are_refused(run, overrides, message):
    def check_settings():
        changed = override_run(run, overrides, report=lambda line: None)
        validate_run(changed)
        make_program(changed, make_mesh(Mesh(1), jax.devices()[:1]))

    with pytest.raises(ConfigError, match=re.escape(message)):
        check_settings()


def test_a_model_without_such_matrices_is_refused(run):
    encoder = TextCnnConfig(vocab=128, width=16)
    model = ClassifierConfig(encoder=encoder, labels=("a", "b"))
    with pytest.raises(ConfigError, match="a TextCnnConfig has no such matrix .* LoRA needs"):
        abstract_paths(dataclasses.replace(run, model=model))
