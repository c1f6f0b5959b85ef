"""`train.trainable_layers`: frozen parameters stay bit-identical, and the others train: no layer,
the upper ones, or all.
"""

import dataclasses
import re

import jax
import numpy as np
import pytest

from models import build
from models.config.albert import AlbertConfig
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.gpt3 import Gpt3Config
from pretrain.config import override_run, validate_run
from pretrain.mesh.sharding import format_path, make_mesh
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers import make_run_optimizer
from pretrain.training.optimizers.frozen import zero_frozen
from pretrain.training.program import make_program


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("free", "scan"), [(0, True), (1, True), (1, False), (-1, True)])
def test_frozen_parameters_have_no_updates(free, scan):
    """Checked on updates alone."""
    layers = {"mlp": {"up": {"kernel": np.ones((2, 3, 4) if scan else (3, 4))}}}
    tree = {
        "encoder": {"bert": {"embeddings": {"token_embedding": np.ones(3)}, "pooler": {"kernel": np.ones(3)}}},
        "classifier": {"out": {"bias": np.ones(2)}},
    }  # fmt: skip
    tree["encoder"]["bert"]["encoder"] = (
        {"layers": layers} if scan else {"layer_0": layers, "layer_1": layers}
    )
    left = jax.tree.map(
        lambda leaf: np.asarray(leaf), zero_frozen(tree, 2, free if free >= 0 else 2)
    )
    assert (
        left["classifier"]["out"]["bias"].all()
        and left["encoder"]["bert"]["pooler"]["kernel"].all()
    )
    assert not left["encoder"]["bert"]["embeddings"]["token_embedding"].any()
    stack = left["encoder"]["bert"]["encoder"]
    each = (
        [stack[f"layer_{i}"]["mlp"]["up"]["kernel"] for i in (0, 1)]
        if not scan
        else stack["layers"]["mlp"]["up"]["kernel"]
    )
    assert [bool(layer.any()) for layer in each] == [
        i >= 2 - free if free >= 0 else True for i in (0, 1)
    ]
    assert [bool(layer.all()) for layer in each] == [bool(layer.any()) for layer in each]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_the_upper_pair_of_gpt3s_layers_is_trained(runs, scan):
    """A dense and a banded layer are one entry of the stack."""
    encoder = Gpt3Config(vocab=20, length=8, depth=4, width=8, num_heads=2, mlp=16, scan=scan)
    model = ClassifierConfig(encoder=encoder, labels=("a", "b"))
    run = override_run(
        dataclasses.replace(runs["classifier"], model=model), ["train.trainable_layers=2"]
    )
    validate_run(run)
    tokens = np.ones((1, 8), np.int32)
    shapes = jax.eval_shape(build(model).init, jax.random.key(0), tokens, tokens > 0)["params"]
    ones = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    optimizer = make_run_optimizer(run)
    updates, _ = optimizer.update(ones, optimizer.init(ones), ones)
    layers = {
        format_path(keys): [bool(np.any(layer)) for layer in (leaf if scan else [leaf])]
        for keys, leaf in jax.tree_util.tree_leaves_with_path(updates)
        if re.search("/layers/|/layer_", format_path(keys))
    }
    assert len(layers) == (32 if scan else 64)
    for path, has_updates in layers.items():
        assert has_updates == ([False, True] if scan else ["/layer_1/" in path]), path


def test_frozen_gradients_do_not_count_in_the_norm(runs):
    """Frozen gradients do not count in the clipped norm: the head's updates equal those next to an
    encoder without gradients.
    """
    run = override_run(
        runs["classifier"], ["train.trainable_layers=0", "optimizer.max_grad_norm=1"]
    )
    tree = {
        "encoder": {"bert": {"embeddings": {"token_embedding": np.ones(3, np.float32)}}},
        "classifier": {"out": {"bias": np.ones(2, np.float32)}},
    }

    @jax.jit
    def update_tree(of_encoder):
        gradients = jax.tree_util.tree_map_with_path(
            lambda keys, leaf: leaf * (of_encoder if "encoder" in format_path(keys) else 2.0), tree
        )
        optimizer = make_run_optimizer(run)
        state = optimizer.init(tree)
        for scale in (0.1, 5.0):  # Adam's first update does not depend on the size of the gradient
            updates, state = optimizer.update(
                jax.tree.map(lambda leaf, scale=scale: leaf * scale, gradients), state, tree
            )
        return updates

    loud, still = update_tree(1000.0), update_tree(0.0)
    np.testing.assert_array_equal(
        loud["classifier"]["out"]["bias"], still["classifier"]["out"]["bias"]
    )
    assert (
        still["classifier"]["out"]["bias"].all() and not jax.tree.leaves(loud["encoder"])[0].any()
    )


def test_a_frozen_encoder_is_unchanged(runs, random_batch):
    run = override_run(
        runs["classifier"], ["train.trainable_layers=1", "optimizer.weight_decay=0.1"]
    )
    mesh = make_mesh(run.mesh, jax.devices()[:1])
    with jax.set_mesh(mesh):
        program = make_program(run, mesh)
        state = program.init()
        before = jax.device_get(state.params)
        for seed in range(2):
            state, metrics = program.train_step(
                state, jax.device_put(random_batch(run, seed), program.batch["token_ids"].sharding)
            )
    assert metrics["classification_accuracy"] <= 1 and metrics["skipped"] == 0
    after = jax.tree.leaves(jax.device_get(state.params))
    changed = {
        format_path(keys): a != b
        for (keys, a), b in zip(jax.tree_util.tree_leaves_with_path(before), after)
    }
    for path, differs in changed.items():
        if "/layers/" in path:
            assert not differs[0].any(), path
            assert path.endswith("key/bias") or differs[1].any(), (
                path
            )  # a key's bias has no gradient except rounding
        else:
            assert differs.any() == (path.startswith("classifier/") or "/pooler/" in path), path


def test_invalid_frozen_layers_are_refused(runs):
    with pytest.raises(ConfigError, match="train.trainable_layers=0: only a fine-tuned encoder"):
        validate_run(override_run(runs["bert"], ["train.trainable_layers=0"]))
    with pytest.raises(ConfigError, match="train.trainable_layers=3: the encoder has 2 layers"):
        validate_run(override_run(runs["classifier"], ["train.trainable_layers=3"]))
    albert = dataclasses.replace(
        runs["classifier"], model=ClassifierConfig(encoder=AlbertConfig(), labels=("a", "b"))
    )
    with pytest.raises(
        ConfigError, match="all layers of the AlbertConfig have the same parameters"
    ):
        validate_run(override_run(albert, ["train.trainable_layers=2"]))
    gpt3 = dataclasses.replace(
        runs["classifier"], model=ClassifierConfig(encoder=Gpt3Config(depth=4), labels=("a", "b"))
    )
    with pytest.raises(ConfigError, match="layers of the Gpt3Config are trained 2 at a time"):
        validate_run(override_run(gpt3, ["train.trainable_layers=3"]))
    frozen = override_run(albert, ["train.trainable_layers=0"])
    validate_run(frozen)
    assert frozen.train.trainable_layers == 0
    assert isinstance(runs["classifier"].model.encoder, BertConfig)
