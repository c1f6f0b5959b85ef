"""DeiT with its distillation token: the published sizes, and transformers' logits of both heads."""

import dataclasses

import jax
import numpy as np
import pytest

from models.config.deit import DeitConfig
from models.vit import resize_positions
from tests.models.image_peers import compute_their_outputs, convert_back, draw_params, draw_pixels
from tests.models.test_vit import count_parameters

TINY = DeitConfig(image_size=12, patch_size=4, width=24, depth=2, num_heads=3, mlp=40, classes=7)
SIZES = {
    "ti16": ({"width": 192, "num_heads": 3, "mlp": 768}, 5_910_800),
    "s16": ({"width": 384, "num_heads": 6, "mlp": 1536}, 22_436_432),
    "b16": ({}, 87_338_192),
}
SETTINGS = {
    "default": {},
    "no_bias_of_qkv": {"qkv_bias": False, "scan": False},
    "brightness": {"channels": 1, "mean": (0.13,), "std": (0.3,), "patch_size": 3},
}


@pytest.mark.parametrize("size", SIZES)
def test_published_sizes(size):
    settings, count = SIZES[size]
    assert count_parameters(DeitConfig(**settings)) == count


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_logits_are_those_of_transformers(settings):
    """Of each head, and their mean."""
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    config = dataclasses.replace(TINY, **settings)
    model, params = draw_params(config)
    pixels = draw_pixels(config)
    theirs = compute_their_outputs(config, params, pixels)
    by_class, by_distillation = model.apply({"params": params}, pixels, method="compute_both")
    assert theirs["logits"].std() > 0.1
    assert np.abs(theirs["cls_logits"] - theirs["distillation_logits"]).max() > 0.1
    for ours, name in (
        (model.apply({"params": params}, pixels), "logits"),
        (by_class, "cls_logits"),
        (by_distillation, "distillation_logits"),
    ):
        np.testing.assert_allclose(ours, theirs[name], atol=1e-5, rtol=1e-5)


def test_a_conversion_and_back_changes_no_parameter():
    _, params = draw_params(TINY)
    found, report = convert_back(TINY, params)
    assert report.missing == report.unused == ()
    jax.tree.map(np.testing.assert_array_equal, found, params)


def test_positions_of_both_tokens_stay():
    _, params = draw_params(TINY)
    table = params["embeddings"]["position_embedding"]["embedding"]
    found = resize_positions(params, TINY, 20)[0]["embeddings"]["position_embedding"]["embedding"]
    assert found.shape == (27, 24)
    np.testing.assert_array_equal(found[:2], table[:2])
