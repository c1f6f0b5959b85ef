"""ViT: the published sizes, the logits of transformers, the order of patches, positions of other
sizes.
"""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.base import Pixels
from models.config.vit import VitConfig
from models.layers.images.pixels import normalize_pixels
from models.vit import make_cubic_weights, resize_positions, split_patches
from tests.models.image_peers import compute_their_outputs, convert_back, draw_params, draw_pixels

TINY = VitConfig(image_size=12, patch_size=4, width=24, depth=2, num_heads=3, mlp=40, classes=7)
SETTINGS = {
    "default": {},
    "no_bias_of_qkv": {"qkv_bias": False, "scan": False},
    "brightness": {"pixels": Pixels(mean=(0.13,), std=(0.3,)), "patch_size": 3},
    "imagenet_epsilon": {
        "pixels": Pixels(mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3)),
        "epsilon": 1e-2,
    },
}


@partial(jax.jit, static_argnums=0, static_argnames="method")
def run_model(model, params, *inputs, method=None):
    """Return what a module computes: one program of each module and method."""
    return model.apply({"params": params}, *inputs, method=method)


def count_parameters(config):
    model, pixels = build(config), draw_pixels(config, 1)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), pixels))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes["params"]))


@pytest.mark.more
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_logits_are_those_of_transformers(settings):
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    config = dataclasses.replace(TINY, **settings)
    model, params = draw_params(config)
    pixels = draw_pixels(config)
    theirs = compute_their_outputs(config, params, pixels)["logits"]
    ours = run_model(model, params, pixels)
    assert theirs.std() > 0.1
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_mean_of_the_patches_has_no_class_token():
    """The logits are the head's of the mean of the last states, one for each patch."""
    config = dataclasses.replace(TINY, pooling="mean")
    model, params = draw_params(config)
    assert count_parameters(config) == count_parameters(TINY) - 2 * TINY.width
    pixels = draw_pixels(config)
    states = run_model(model, params, pixels, method="encode")
    assert states.shape == (3, 9, 24)
    head = params["classifier"]["out"]
    np.testing.assert_allclose(
        run_model(model, params, pixels),
        np.asarray(states).mean(1) @ head["kernel"] + head["bias"],
        atol=1e-5,
    )


def test_patches_and_positions_are_in_the_order_of_reading():
    """Each embedding is a sum over the patch's own rows, columns and channels, and its position."""
    model, params = draw_params(TINY)
    pixels, own = draw_pixels(TINY), params["embeddings"]
    embed = lambda model, pixels: model.embeddings(pixels, False)  # noqa: E731
    found = np.array(run_model(model, params, pixels, method=embed))
    table, kernel = own["position_embedding"]["embedding"], own["patch_embedding"]["kernel"]
    assert found.shape == (3, 10, 24)
    np.testing.assert_allclose(found[1, 0], own["class_token"] + table[0], atol=1e-6)
    for row in range(3):
        for column in range(3):
            expected = own["patch_embedding"]["bias"] + table[1 + 3 * row + column]
            for y in range(4):
                for x in range(4):
                    for channel in range(3):
                        value = pixels[1, 4 * row + y, 4 * column + x, channel] / 255
                        expected = expected + (value - 0.5) / 0.5 * kernel[y, x, channel]
            np.testing.assert_allclose(found[1, 1 + 3 * row + column], expected, atol=1e-5)


def test_images_that_do_not_fit_are_refused():
    model, params = draw_params(TINY)
    for shape in ((1, 16, 12, 3), (1, 12, 12, 1)):
        with pytest.raises(ValueError, match=r"the model reads \[12, 12, 3\] \(model.image_size"):
            run_model(model, params, np.zeros(shape, np.uint8))
    with pytest.raises(ValueError, match="patch_size=5 does not divide image_size=12"):
        dataclasses.replace(TINY, patch_size=5)
    with pytest.raises(ValueError, match="a width of 24 does not divide into 5 heads"):
        draw_params(dataclasses.replace(TINY, num_heads=5))


def test_pixels_are_normalized_in_float32():
    config = dataclasses.replace(TINY, pixels=Pixels(mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0)))
    pixels = draw_pixels(config)
    found = normalize_pixels(jnp.asarray(pixels), config, jnp.bfloat16)
    assert found.dtype == jnp.bfloat16
    expected = (pixels / 255 - np.array(config.pixels.mean)) / np.array(config.pixels.std)
    rounded = expected.astype(np.float32).astype(jnp.bfloat16)
    np.testing.assert_allclose(np.float32(found), np.float32(rounded), atol=1e-6)


def test_patches_are_cut_and_nothing_is_lost():
    x = np.arange(2 * 6 * 6 * 3).reshape(2, 6, 6, 3)
    patches = split_patches(jnp.asarray(x), 2)
    assert patches.shape == (2, 9, 2, 2, 3)
    np.testing.assert_array_equal(patches[1, 5], x[1, 2:4, 4:6])


@pytest.mark.more
@pytest.mark.parametrize("image_size", [20, 8, 12])
def test_positions_of_another_size_are_those_of_pytorch(image_size):
    """Of a larger image, a smaller one and the same one."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    _, params = draw_params(TINY)
    resized, config = resize_positions(params, TINY, image_size)
    table = params["embeddings"]["position_embedding"]["embedding"]
    grid = torch.tensor(table[1:]).reshape(1, 3, 3, -1).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(
        grid, size=(config.grid_size,) * 2, mode="bicubic", align_corners=False
    )
    found = resized["embeddings"]["position_embedding"]["embedding"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[0], table[0])
    np.testing.assert_allclose(
        found[1:], expected.permute(0, 2, 3, 1).reshape(-1, TINY.width).numpy(), atol=1e-5
    )
    model = build(config)
    logits = jax.eval_shape(model.apply, {"params": resized}, draw_pixels(config))
    assert logits.shape == (3, 7)


@pytest.mark.more
def test_a_resized_model_is_that_of_transformers():
    """Theirs interpolates the positions while it reads a larger image."""
    pytest.importorskip("torch", reason="the extra `peers` is not installed: no torch")
    _, params = draw_params(TINY)
    resized, config = resize_positions(params, TINY, 24)
    pixels = draw_pixels(config)
    theirs = compute_their_outputs(TINY, params, pixels, interpolate_pos_encoding=True)["logits"]
    ours = run_model(build(config), resized, pixels)
    np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_weights_of_cubic_convolution():
    """They sum to 1; a straight line stays one away from the edges, and equal sizes change none."""
    for old, new in ((5, 9), (9, 4), (4, 4)):
        np.testing.assert_allclose(make_cubic_weights(old, new).sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(make_cubic_weights(6, 6), np.eye(6), atol=1e-12)


def test_a_conversion_and_back_changes_no_parameter():
    for settings in SETTINGS.values():
        config = dataclasses.replace(TINY, **settings)
        _, params = draw_params(config)
        found, report = convert_back(config, params)
        assert report.missing == report.unused == ()
        jax.tree.map(np.testing.assert_array_equal, found, params)


# ---- stochastic depth ----------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def apply_in_training(config, params, seed, pixels):
    rngs = {"dropout": jax.random.key(seed)}
    return build(config).apply({"params": params}, pixels, train=True, rngs=rngs)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_rows_skip_sublayers_in_training_alone(scan, unroll):
    """A row with all sublayers skipped but the first layer's differs from others; one key decides."""
    config = dataclasses.replace(TINY, path_dropout=0.5, scan=scan)
    _, params = draw_params(TINY)
    params = params if scan else unroll(params, {"encoder": 2})
    pixels = np.repeat(draw_pixels(TINY, 1), 64, axis=0)
    calm = run_model(build(config), params, pixels)
    never = build(dataclasses.replace(config, path_dropout=0.0))
    np.testing.assert_allclose(calm, run_model(never, params, pixels))
    one, again, other = (apply_in_training(config, params, seed, pixels) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    # The last of two layers skips each of its two sublayers or not: four results.
    assert len(np.unique(np.round(np.asarray(one)[:, 0], 4))) == 4
    with pytest.raises(Exception, match="dropout"):
        jax.eval_shape(partial(build(config).apply, train=True), {"params": params}, pixels)
