"""Tiny models whose parameters all differ from 0 and 1, and the results of `transformers`."""

import dataclasses
import functools
import importlib.util
import json
import types

import jax
import numpy as np
import pytest

from models.config.t5gemma import T5GemmaConfig
from models.config.transformer_xl import Clusters
from models.config.vit import VitConfig
from models.layers.layer_layout import unflatten_params
from pretrain.convert import name_map
from pretrain.families import FAMILIES
from tests.tiny import compute_shapes, fit_sizes

SIZES = {
    "vocab": 50,
    "length": 32,
    "embedding": 10,
    "width": 24,
    "num_heads": 3,
    "head_width": 5,
    "depth": 2,
    "decoder_depth": 3,
    "mlp": 40,
    "window": 4,
    "buckets": 8,
    "max_distance": 20,
    "generator_depth": 1,
    "generator_width": 8,
    "generator_num_heads": 2,
    "generator_mlp": 12,
    "teacher_depth": None,
    "memory": 5,
    "rank": 4,
    "clusters": Clusters((12, 30), 2),
    "stride": 4,
    "summary": 1,
    "subblocks": 2,
    "layers": ("local", "lsh"),
    "axial_shape": (4, 8),
    "axial_widths": (10, 14),
    "image_size": 12,
    "patch_size": 4,
    "classes": 50,
    "cells": 20,
    "characters": 6,
    "character_width": 5,
    "character_filters": ((1, 4), (3, 7)),
}


SIZES["teacher"] = fit_sizes(VitConfig, SIZES)
# Rotary positions turn pairs of dimensions.
OWN = {"t5gemma": {"head_width": 6, "num_key_heads": 1}}
TINY = {
    name: fit_sizes(family.config, SIZES | OWN.get(name, {})) for name, family in FAMILIES.items()
}
# Two groups of two query heads, whose width is even.
TINY["eurobert"] = dataclasses.replace(TINY["eurobert"], num_heads=4, num_key_heads=2)
# A first layer, two groups of a local and a global one, and a local one.
for name in ("modernbert", "modernbert_decoder"):
    TINY[name] = dataclasses.replace(TINY[name], depth=6, global_every=2)


@functools.cache
def make_model(config):
    """Return (module, random parameters) in which no bias is 0 and no scale 1; from NumPy, so
    nothing is compiled.
    """
    model, shapes = compute_shapes(config)
    rng = np.random.default_rng(0)
    scale = 0 if isinstance(config, T5GemmaConfig) else 1  # Gemma's norms add 1 to it

    def draw_leaf(path, leaf):
        name = path[-1].key
        noise = rng.standard_normal(leaf.shape, np.float32) * np.float32(
            0.5 if name == "embedding" else 0.2
        )
        return jax.device_put(noise + np.float32(scale if name == "scale" else 0))

    return model, jax.tree_util.tree_map_with_path(draw_leaf, shapes)


@pytest.fixture(scope="session")
def make():
    """Return make(config): (module, random parameters)."""
    return make_model


@pytest.fixture(scope="session")
def bert_config():
    return TINY["bert"]


@pytest.fixture(scope="session")
def t5_config():
    return TINY["t5"]


@pytest.fixture(scope="session")
def tiny_configs():
    """Return {name of a family: its tiny configuration}."""
    return TINY


@pytest.fixture(scope="session")
def unroll():
    """Return unroll(params, depths): the same parameters in layer_0, layer_1, ..."""
    return lambda params, depths: unflatten_params(name_map.flatten_layers(params, depths))


@pytest.fixture(scope="session")
def dropouts():
    """Return dropouts(f): how often the program of f() reads a key as the seed of dropout, inner
    programs included.
    """

    def count_draws(jaxpr):
        inner = (part for equation in jaxpr.eqns for part in jax.tree.leaves(equation.params))
        own = sum(equation.primitive.name == "random_unwrap" for equation in jaxpr.eqns)
        return own + sum(count_draws(part.jaxpr) for part in inner if hasattr(part, "jaxpr"))

    return lambda f: count_draws(jax.make_jaxpr(f)().jaxpr)


@pytest.fixture(scope="session")
def golden(root):
    """Return golden(name): config, weights, inputs and outputs of a file of tests/goldens/make.py."""
    from safetensors import safe_open

    @functools.cache
    def read_golden(name):
        parts = {"weights": {}, "inputs": {}, "outputs": {}}
        with safe_open(root / "tests" / "goldens" / f"{name}.safetensors", "np") as file:
            for key in file.keys():  # noqa: SIM118 - it has keys, but no __iter__
                part, _, rest = key.partition(".")
                parts[part][rest] = file.get_tensor(key)
            return types.SimpleNamespace(config=json.loads(file.metadata()["config"]), **parts)

    return read_golden


@pytest.fixture(scope="session")
def goldens(root):
    """Return the module tests/goldens/make.py."""
    path = root / "tests" / "goldens" / "make.py"
    spec = importlib.util.spec_from_file_location("goldens_make", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
