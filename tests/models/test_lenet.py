"""LeNet-5: the paper's counts of parameters and table of connections, and its equations in NumPy."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.base import Pixels
from models.config.lenet import LenetConfig
from models.lenet import CONNECTIONS, squash
from pretrain.mesh.sharding import format_path
from pretrain.training.losses import find_loss
from tests.models.image_peers import draw_params, draw_pixels

# LeCun et al. 1998, table I: a row for each map of S2, a column for each map of C3.
TABLE = """
X . . . X X X . . X X X X . X X
X X . . . X X X . . X X X X . X
X X X . . . X X X . . X . X X X
. X X X . . X X X X . . X . X X
. . X X X . . X X X X . X X . X
. . . X X X . . X X X X . X X X
"""
READS = np.array([[cell == "X" for cell in row.split()] for row in TABLE.split("\n") if row])


def count_layers(config):
    model, pixels = build(config), draw_pixels(config, 1)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), pixels))["params"]
    return {
        name: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(layer))
        for name, layer in shapes.items()
    }


def test_published_sizes():
    """Section II.B gives the trainable parameters of each layer, and 60,000 in all."""
    counts = count_layers(LenetConfig())
    assert counts.pop("output") == 10 * 84  # fixed codes
    published = {"c1": 156, "s2": 12, "c3": 1516, "s4": 32, "c5": 48_120, "f6": 10_164}
    assert counts == published and sum(counts.values()) == 60_000
    assert counts == {
        name: count
        for name, count in count_layers(LenetConfig(image_size=32, padding=0)).items()
        if name != "output"
    }


def test_the_connections_are_those_of_table_1():
    assert [sorted(maps) for maps in CONNECTIONS] == [
        np.flatnonzero(column).tolist() for column in READS.T
    ]


def test_codes_are_fixed_and_random():
    config = LenetConfig(classes=50)
    init = jax.jit(build(config).init)
    params = init(jax.random.key(0), draw_pixels(config, 1))["params"]
    codes = np.asarray(params["output"]["codes"])
    assert codes.shape == (50, 84) and {*np.unique(codes)} == {-1, 1} and abs(codes.mean()) < 0.05
    assert len({code.tobytes() for code in codes}) == 50
    paths = [format_path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert [path for path in paths if path.startswith(config.frozen_params)] == ["output/codes"]


def compute_in_numpy(config, params, pixels):
    """Return the logarithms of the classes' probabilities, map by map and place by place."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def squash_in_numpy(x):
        return 1.7159 * np.tanh(2 / 3 * x)

    def convolve(maps, kernels, bias):
        """maps: [B, H, W, M]; kernels: {(map that is read, new map): [5, 5]}."""
        B, H, W, _ = maps.shape
        new = np.tile(bias, (B, H - 4, W - 4, 1))
        for (read, written), kernel in kernels.items():
            for y, x in np.ndindex(H - 4, W - 4):
                window = maps[:, y : y + 5, x : x + 5, read]
                new[:, y, x, written] += (window * kernel).sum(axis=(1, 2))
        return squash_in_numpy(new)

    def halve(maps, layer):
        sums = sum(maps[:, i::2, j::2] for i in (0, 1) for j in (0, 1))
        return squash_in_numpy(sums * layer["coefficient"] + layer["bias"])

    pad = config.padding
    values = np.pad(pixels, ((0, 0), (pad, pad), (pad, pad), (0, 0))) / 255
    x = (values - np.array(config.pixels.mean)) / np.array(config.pixels.std)
    channels = [(read, written) for written in range(6) for read in range(config.channels)]
    pairs = [(read, written) for written, maps in enumerate(CONNECTIONS) for read in maps]
    for convolution, sampling, kernels in (("c1", "s2", channels), ("c3", "s4", pairs)):
        filters = np.moveaxis(p[convolution]["filters"], -1, 0)
        kernels = dict(zip(kernels, filters, strict=True))
        x = halve(convolve(x, kernels, p[convolution]["bias"]), p[sampling])
    x = squash_in_numpy(np.einsum("bhwm,hwmd->bd", x, p["c5"]["kernel"]) + p["c5"]["bias"])
    x = squash_in_numpy(x @ p["f6"]["kernel"] + p["f6"]["bias"])
    codes = p["output"]["codes"]
    distances = np.array([[((row - code) ** 2).sum() for code in codes] for row in x])
    scores = -distances / 84**0.5
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": 16},
        {"image_size": 20, "padding": 0, "pixels": Pixels(mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 1))},
    ],
)
def test_probabilities_are_those_of_the_equations(settings):
    config = LenetConfig(**settings, classes=4)
    model, params = draw_params(config)
    params["output"]["codes"] = np.sign(params["output"]["codes"])
    pixels = draw_pixels(config)
    expected = compute_in_numpy(config, params, pixels)
    low = jax.tree.map(lambda leaf: np.asarray(leaf).astype(jnp.bfloat16), params)
    run = jax.jit(model.apply)
    for values, error in ((params, 2e-5), (low, 0.1 * expected.std())):
        logits = np.array(run({"params": values}, pixels))
        assert logits.dtype == jnp.float32 and expected.std() > 0.1
        found = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(found, expected, atol=error)


def test_right_predictions_count():
    """The trainer compares a logit with itself, which must be rounded in one way."""
    model, params = draw_params(LenetConfig())
    pixels = draw_pixels(LenetConfig(), rows=32)
    classes = np.argmax(jax.jit(model.apply)({"params": params}, pixels), axis=-1)
    batch = {"pixels": pixels, "labels": classes, "row_weights": np.ones(32, np.float32)}
    sums = jax.jit(partial(find_loss("image_classification").sum_batch, model))(params, batch)
    assert sums["image_classification_accuracy"] == 32


def test_the_squashing_function_leaves_1_and_minus_1():
    np.testing.assert_allclose(squash(jnp.array([-1.0, 0, 1])), [-1, 0, 1], atol=1e-4)


@pytest.mark.parametrize("settings", [{"image_size": 30}, {"image_size": 8}, {"padding": 1}])
def test_maps_that_cannot_be_halved_twice_are_refused(settings):
    with pytest.raises(ValueError, match="must be a multiple of 4 from 16 up"):
        dataclasses.replace(LenetConfig(), **settings)
