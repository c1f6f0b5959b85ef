"""Optimizers of today against NumPy for 20 steps, on stacks of layers, and on meshes."""

import re
import typing
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from models import build
from pretrain import settings as schema
from pretrain.config import Lion, Mesh, Muon, StableAdamW
from pretrain.mesh.sharding import format_path, make_mesh, make_state_shardings
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers import allow_promotion, make_optimizer
from pretrain.training.optimizers.muon import label_params
from pretrain.training.optimizers.transforms import is_decayed, make_weight_decay_mask
from pretrain.training.schedules import make_learning_rate
from pretrain.training.state import create_state, init_params

SHAPES = {
    "encoder/layers/attention/query/kernel": (3, 16, 2, 8),
    "encoder/layers/attention/query/bias": (3, 2, 8),
    "encoder/layers/attention/out/kernel": (3, 2, 8, 16),
    "encoder/layers/mlp/up/kernel": (3, 16, 24),
    "encoder/layers/mlp/down/kernel": (3, 24, 16),
    "encoder/layers/mlp_norm/scale": (3, 16),
    "token_embedding/embedding": (32, 16),
    "pooler/kernel": (16, 16),
    "mlm_head/bias": (32,),
}
STEPS = 20


def make_tree(leaves):
    """Return the nested tree of {path: array}, float32."""
    tree = {}
    for path, leaf in leaves.items():
        *folders, name = path.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = jnp.asarray(leaf, jnp.float32)
    return tree


def flatten(tree):
    return {format_path(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unroll(leaves):
    """Return {path: array} with the layers of stacks apart."""
    unrolled = {}
    for path, leaf in leaves.items():
        if "/layers/" in path:
            for i, layer in enumerate(leaf):
                unrolled[path.replace("/layers/", f"/layer_{i}/")] = layer
        else:
            unrolled[path] = leaf
    return unrolled


def draw(rng, step=0):
    """Return {path: array}: each layer of its own size, and a hundredfold at every seventh step."""
    sizes = np.array([0.01, 1, 30])
    leaves = {}
    for path, shape in SHAPES.items():
        size = sizes.reshape(3, *(1,) * (len(shape) - 1)) if "/layers/" in path else 1.0
        leaves[path] = rng.standard_normal(shape) * size * (100 if step % 7 == 6 else 1)
    return leaves


def train(optimizer, leaves, gradients, place=lambda tree: tree):
    """Return {path: array} after an update for each of the gradients."""
    params = place(make_tree(leaves))
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for grads in gradients:
        updates, state = update(place(make_tree(grads)), state, params)
        params = jax.tree.map(jnp.add, params, updates)
    return flatten(params)


def assert_is_reference(config, reference):
    """Compare 20 updates with `reference(config, rate, path, weight, memory, gradient)` in float64.

    The reference gets one layer at a time, and keeps what it likes in `memory`.
    """
    rng = np.random.default_rng(0)
    weights = draw(rng)
    gradients = [draw(rng, step) for step in range(STEPS)]
    rate = make_learning_rate(config, STEPS)
    expected, memories = unroll(weights), {}
    for n, grads in enumerate(gradients):
        for path, grad in unroll(grads).items():
            memory = memories.setdefault(path, {"step": 0})
            memory["step"] += 1
            expected[path] = reference(config, float(rate(n)), path, expected[path], memory, grad)
    optimizer = make_optimizer(config, STEPS)
    for found in (
        unroll(train(optimizer, weights, gradients)),
        train(optimizer, unroll(weights), [unroll(grads) for grads in gradients]),
    ):
        assert found.keys() == expected.keys()
        for path, leaf in found.items():
            moved = np.abs(expected[path] - unroll(weights)[path]).max()
            np.testing.assert_allclose(leaf, expected[path], atol=2e-5 * moved, err_msg=path)
    return memories


def step_stable_adamw(config, rate, path, weight, memory, grad):
    """optimi's StableAdamW: debiased betas, and a rate that each tensor's gradient limits."""
    step = memory["step"]
    beta1, beta2 = ((beta**step - beta) / (beta**step - 1) for beta in (config.beta1, config.beta2))
    memory["m"] = beta1 * memory.get("m", 0.0) + (1 - beta1) * grad
    memory["v"] = beta2 * memory.get("v", 0.0) + (1 - beta2) * grad**2
    size = np.sqrt((grad**2 / np.maximum(memory["v"], config.epsilon**2)).mean())
    memory["largest"] = max(memory.get("largest", 0), size)
    peak, rate = config.learning_rate if config.decoupled else 1.0, rate / max(1, size)
    if is_decayed(path):
        weight = weight * (1 - rate / peak * config.weight_decay)
    return weight - rate * memory["m"] / (np.sqrt(memory["v"]) + config.epsilon)


@pytest.mark.parametrize("decoupled", [True, False])
def test_stable_adamw_is_its_formula(decoupled):
    config = StableAdamW(
        learning_rate=0.05, warmup_steps=5, end_lr_ratio=0.5, weight_decay=0.1, decoupled=decoupled
    )
    memories = assert_is_reference(config, step_stable_adamw)
    assert all(memory["largest"] > 2 for memory in memories.values())


def step_lion(config, rate, path, weight, memory, grad):
    """Chen et al. 2023, algorithm 2."""
    m = memory.get("m", 0.0)
    memory["m"] = config.beta2 * m + (1 - config.beta2) * grad
    decay = config.weight_decay * weight if is_decayed(path) else 0.0
    return weight - rate * (np.sign(config.beta1 * m + (1 - config.beta1) * grad) + decay)


def test_lion_is_its_formula():
    config = Lion(learning_rate=0.05, warmup_steps=5, weight_decay=0.5, max_grad_norm=0.0)
    assert_is_reference(config, step_lion)


def cut_matrices(leaves, per_head):
    """Return {path: matrix} of kernels of attention and MLPs, and {path: rest}, of single layers."""
    matrices, rest = {}, {}
    for path, leaf in unroll(leaves).items():
        leaf = np.asarray(leaf)
        if not re.search("(attention|mlp)/.*kernel", path):
            rest[path] = leaf
        elif "mlp" in path:
            matrices[path] = leaf
        elif not per_head:  # [D, H, K] or [H, K, D]
            rows = leaf.shape[0] if "query" in path else -1
            matrices[path] = leaf.reshape(rows, leaf.shape[-1] if rows < 0 else -1)
        else:
            heads = np.moveaxis(leaf, 1 if "query" in path else 0, 0)
            matrices |= {f"{path}/{head}": matrix for head, matrix in enumerate(heads)}
    return matrices, rest


@pytest.mark.held_by("heads")
@pytest.mark.parametrize(
    ("per_head", "rms"), [(True, 0.2), (False, 0.0)], ids=["heads", "whole and by shape"]
)
def test_muon_is_optax_of_flat_matrices(per_head, rms):
    """Matrices of two dimensions under optax's own rule, and the rest under AdamW."""
    config = Muon(
        learning_rate=0.02,
        warmup_steps=5,
        consistent_rms=rms,
        per_head=per_head,
        weight_decay=0.5,
        max_grad_norm=0.0,
    )
    rng, rate = np.random.default_rng(0), make_learning_rate(config, STEPS)
    weights = draw(rng)
    gradients = [draw(rng, step) for step in range(STEPS)]
    peers = (
        optax.contrib.muon(rate, weight_decay=0.5, consistent_rms=rms or None),
        optax.adamw(rate, eps=1e-6, weight_decay=0.5, mask=make_weight_decay_mask),
    )
    first, *steps = (cut_matrices(leaves, per_head) for leaves in (weights, *gradients))
    expected = {}
    for i, peer in enumerate(peers):
        expected |= train(allow_promotion(peer), first[i], [step[i] for step in steps])
    for place in (lambda leaves: leaves, unroll):
        placed = [place(grads) for grads in gradients]
        matrices, rest = cut_matrices(
            train(make_optimizer(config, STEPS), place(weights), placed), per_head
        )
        assert matrices and rest and (matrices | rest).keys() == expected.keys()
        for path, leaf in (matrices | rest).items():
            moved = np.abs(expected[path] - (first[0] | first[1])[path]).max()
            np.testing.assert_allclose(leaf, expected[path], atol=2e-4 * moved, err_msg=path)


def test_muon_takes_no_table_no_head_and_no_vector(runs):
    """The matrices of a BERT are the kernels of its attention and its MLPs."""
    taken = []
    for name in ("bert_pairs", "bert_unrolled"):
        run = runs[name]
        params = jax.eval_shape(
            partial(init_params, build(run.model), run.data.objective, run.train.seed)
        )
        labels = flatten(label_params(params))
        taken.append({path.rpartition("/encoder/")[2] for path in labels if labels[path] == "muon"})
    ends = [f"attention/{part}/kernel" for part in ("query", "key", "value", "out")]
    ends += ["mlp/up/kernel", "mlp/down/kernel"]
    assert taken[0] == {f"layers/{end}" for end in ends}
    assert {path.partition("/")[2] for path in taken[1]} == {*ends}


def test_muon_refuses_a_model_without_matrices():
    params = make_tree({"encoder/layers/input/kernel": np.ones((3, 16, 64)), "mlm_head/bias": [0]})
    with pytest.raises(
        ConfigError, match="optimizer=muon: no trained parameter .* optimizer=adamw"
    ):
        make_optimizer(Muon(), STEPS).init(params)


@pytest.mark.held_by("StableAdamW", "Lion", "Muon")
@pytest.mark.parametrize("kind", typing.get_args(schema.Optimizer), ids=lambda kind: kind.__name__)
def test_an_optimizer_is_the_same_on_a_mesh(kind):
    """Parameters, moments and gradients over fsdp and model; five updates."""
    rng = np.random.default_rng(0)
    weights, gradients = draw(rng), [draw(rng, step) for step in range(5)]
    optimizer = make_optimizer(kind(warmup_steps=0, learning_rate=0.1), STEPS)
    expected = train(optimizer, weights, gradients)
    mesh = make_mesh(Mesh(1, 4, 2))
    abstract = jax.eval_shape(partial(create_state, optimizer=optimizer), make_tree(weights))
    shardings = make_state_shardings(abstract, mesh)
    placed = train(
        optimizer, weights, gradients, lambda tree: jax.device_put(tree, shardings.params)
    )
    split = [path for path, leaf in placed.items() if not leaf.sharding.is_fully_replicated]
    assert len(split) > len(SHAPES) / 2
    for path, leaf in placed.items():
        moved = np.abs(expected[path] - weights[path]).max()
        np.testing.assert_allclose(leaf, expected[path], atol=1e-5 * moved, err_msg=path)


@pytest.mark.held_by("Lion", "Muon")
@pytest.mark.parametrize("kind", typing.get_args(schema.Optimizer), ids=lambda kind: kind.__name__)
def test_an_optimizer_is_the_same_on_a_stack_of_layers(kind):
    """Five updates of layers of different sizes, scanned and not."""
    rng = np.random.default_rng(0)
    weights, gradients = draw(rng), [draw(rng, step) for step in range(5)]
    optimizer = make_optimizer(kind(warmup_steps=0, learning_rate=0.1), STEPS)
    scanned = unroll(train(optimizer, weights, gradients))
    layers = train(optimizer, unroll(weights), [unroll(grads) for grads in gradients])
    assert scanned.keys() == layers.keys()
    for path, leaf in scanned.items():
        moved = np.abs(layers[path] - unroll(weights)[path]).max()
        np.testing.assert_allclose(leaf, layers[path], atol=1e-5 * moved, err_msg=path)
