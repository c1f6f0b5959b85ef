"""Attention over images: hand-set weights are found, and pages and PNG files show them.

The figures of filters, positions and distances are compared with hand-made parameters'.
"""

import base64
import dataclasses
import functools
import html
import io
import re
from argparse import Namespace

import jax
import numpy as np
import pytest

from data.images.encoding import ImageEncoding
from models import build
from models.activations import capture_activations
from models.config.deit import DeitConfig
from models.config.vit import VitConfig
from pretrain.cli.attention import draw_maps
from pretrain.config import Mesh
from pretrain.inference.images.patch_attention import compute_image_maps
from pretrain.inference.images.patch_statistics import (
    compare_positions,
    compute_filters,
    measure_distances,
)
from pretrain.mesh.sharding import make_mesh
from pretrain.reporting.patch_figures import draw_cosines, draw_filters
from pretrain.reporting.patch_maps import ImageMaps, lay_over, make_overlay, render_patch_page
from pretrain.workdir.trained import Trained
from tests.pretrain.workdirs import make_trained

Image = pytest.importorskip("PIL.Image")

SIZES = dict(image_size=16, patch_size=4, width=16, depth=2, num_heads=2, mlp=16, classes=3)
EVIL = '</style><script>alert("7")</script>'


def make_tiny(config, scale=0.4):
    return make_trained(config, ImageEncoding(("a", "b", EVIL)), width=scale)


def compute_maps(trained, tmp_path):
    path = tmp_path / "one.png"
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (16, 16, 3), np.uint8)).save(path)
    mesh = make_mesh(Mesh(data=1), jax.devices()[:1])
    with jax.set_mesh(mesh):
        (found,) = compute_image_maps(trained, mesh, [str(path)])
    return found


def set_attention(trained, patch):
    """Let the class token attend, by head 2 of layer 1, to one patch; head 1 attends to all."""
    params = jax.tree.map(np.zeros_like, trained.params)
    layers, table_LD = params["encoder"]["layers"], np.zeros((17, 16), np.float32)
    layers["attention_norm"]["scale"] += 1
    table_LD[:, 2] = 10
    table_LD[[0, 1 + patch]] = 10 * np.eye(2, 16)
    params["embeddings"]["position_embedding"]["embedding"] = table_LD
    layers["attention"]["query"]["kernel"][0, 0, 1, 0] = 3
    layers["attention"]["key"]["kernel"][0, 1, 1, 0] = 3
    return Trained(None, trained.run, 7, params, trained.encoding)


def test_a_class_token_that_attends_to_one_patch_shows_it(tmp_path):
    found = compute_maps(set_attention(make_tiny(VitConfig(**SIZES)), patch=6), tmp_path)
    expected = np.zeros((4, 4))
    expected[1, 2] = 1
    np.testing.assert_allclose(found.weights_NHGG[0, 1], expected, atol=1e-4)
    np.testing.assert_allclose(found.weights_NHGG[0, 0], 1 / 17, atol=1e-6)
    # Half of the class token's state stays; of the rest, head 2 gives half to the patch.
    np.testing.assert_allclose(found.rollout_NGG[0], (expected + 1 / 17) / 4, atol=1e-4)
    assert found.title == "one.png: a (33.3%)"
    overlay = make_overlay(found.weights_NHGG[0, 1])
    assert overlay[1, 2, 3] == 204 and np.delete(overlay[..., 3], 6).max() <= 1
    over = lay_over(np.zeros((16, 16, 1), np.uint8), found.weights_NHGG[0, 1]).max(axis=2)
    assert over.shape == (16, 16) and (over[4:8, 8:12] == 184).all() and over.sum() == 16 * 184


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("config", "read"),
    [
        (VitConfig(**SIZES), [0]),
        (VitConfig(**SIZES, pooling="mean", scan=False), [*range(16)]),
        (DeitConfig(**SIZES), [0, 1]),
    ],
)
def test_the_maps_are_the_weights_of_what_the_head_reads(tmp_path, config, read):
    """Of the class token, of both tokens, or of all patches; rollout is a product of matrices."""
    trained = make_tiny(config)
    found = compute_maps(trained, tmp_path)
    seen = capture_activations(
        build(config), trained.params, found.pixels_SSC[None], method="compute_states"
    )
    weights = np.stack(seen.attention_weights["attention"])[:, 0].astype(np.float64)
    T = config.num_tokens
    expected = weights[:, :, read, T:].mean(axis=2).reshape(2, 2, 4, 4)
    np.testing.assert_allclose(found.weights_NHGG, expected, atol=1e-5)
    one, two = (0.5 * layer.mean(axis=0) + 0.5 * np.eye(T + 16) for layer in weights)
    for rollout, product in zip(found.rollout_NGG, (one, two @ one), strict=True):
        np.testing.assert_allclose(rollout, product[read, T:].mean(axis=0).reshape(4, 4), atol=1e-5)


def make_maps(title, layers=2, heads=2):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (16, 16, 1), np.uint8)
    return ImageMaps(title, pixels, rng.random((layers, heads, 4, 4)), rng.random((layers, 4, 4)))


def read_png(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition("base64,")[2]))))


def test_a_page_shows_each_head_and_executes_nothing():
    maps = make_maps(EVIL)
    page = render_patch_page(EVIL, [maps, maps], [2])
    # The image stands under each map, not under a row of maps and their captions.
    assert re.findall(r"^(.*) \{ background-image", page, re.MULTILINE) == [
        ".i0 .tile",
        ".i1 .tile",
    ]
    holders = set(re.findall(r'<(\w+) class="tile"', page))
    assert holders == {"div"} and '"layer tile"' not in page and '"tile layer"' not in page
    assert "<script" not in page and page.count(html.escape(EVIL)) == 4
    assert "default-src 'none'" in page and not re.search(r"https?:|@import", page)
    backgrounds = re.findall(r'url\("(data:image/png;base64,[^"]+)"\)', page)
    overlays = re.findall(r'src="(data:image/png;base64,[^"]+)"', page)
    np.testing.assert_array_equal(read_png(backgrounds[1]), maps.pixels_SSC[..., 0])
    assert len(backgrounds) == 2 and len(overlays) == 2 * (2 + 2)
    for overlay, (name, expected) in zip(overlays, maps.list_maps(2, [1, 2]), strict=False):
        np.testing.assert_array_equal(read_png(overlay), make_overlay(expected))
        assert f"{name}: {expected.max():.1%}" in page


def test_png_files(tmp_path, spied):
    axes = pytest.importorskip("matplotlib.axes").Axes
    from pretrain.reporting.patch_maps import draw_image_maps

    imshow = spied(axes, "imshow")
    maps = make_maps("$\\nothing{$", layers=3)
    assert draw_image_maps(maps, [1, 3], [2], tmp_path / "one.png") == []
    assert np.asarray(Image.open(tmp_path / "one.png")).shape == (340, 520, 4)
    shown = [call.args[1] for call in imshow.call_args_list]
    assert len(shown) == 2 * (1 + 3)
    np.testing.assert_array_equal(shown[7], lay_over(maps.pixels_SSC, maps.weights_NHGG[2, 1]))
    np.testing.assert_array_equal(shown[5], lay_over(maps.pixels_SSC, maps.rollout_NGG[2]))


def test_nothing_is_drawn_where_an_image_exists(tmp_path):
    pytest.importorskip("matplotlib")
    taken = tmp_path / "image_2.png"
    taken.touch()
    args = Namespace(images=tmp_path, heads=None, overwrite=False, input=None, texts=[])
    with pytest.raises(FileExistsError, match="image_2.png exists"):
        [*draw_maps(args, [make_maps("a"), make_maps("b")], [1])]
    assert [*tmp_path.iterdir()] == [taken]


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    trained = make_tiny(VitConfig(**SIZES))
    params = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), trained.params)
    with pytest.raises(ValueError, match=r"one.png: an attention weight is not a number"):
        compute_maps(dataclasses.replace(trained, params=params), tmp_path)


# ---- filters, positions, distances -------------------------------------------


def test_filters_are_principal_components():
    """Filters of two patterns: the stronger one is first, and each has its largest value positive."""
    one, two = np.zeros((2, 4, 4, 3))
    one[1, 2], two[3] = (-0.8, 0, 0.6), 0.5 / np.sqrt(3)
    share = np.array([[3, -3, 0, 0], [0, 0, 1, -1]])
    kernel = np.tensordot(np.stack([one, two], axis=-1), share, axes=1) + 0.7
    found = compute_filters(kernel.astype(np.float32), 2)
    np.testing.assert_allclose(found[0], -one, atol=1e-6)
    np.testing.assert_allclose(found[1], two, atol=1e-6)
    drawn = draw_filters(found)
    assert drawn.shape == (4, 7 * 5 - 1, 3) and drawn.dtype == np.uint8
    assert drawn[1, 2].tolist() == [255, 128, 33] and (drawn[:, 10:] == 255).all()
    assert (drawn[0, 0] == 128).all() and (drawn[3, 5:9] == 255).all()


def test_positions_are_compared_by_their_cosines():
    table = np.array([[2, 0], [0, 1], [-3, 0], [1, 1]], np.float32)
    found = compare_positions(table)
    assert found.shape == (2, 2, 2, 2)
    np.testing.assert_allclose(found[0, 0], [[1, 0], [-1, np.sqrt(0.5)]], atol=1e-6)
    drawn = draw_cosines(found)
    assert drawn.shape == (5, 5, 3)
    assert drawn[0, 0].tolist() == [214, 60, 45] and drawn[0, 1].tolist() == [255] * 3
    assert drawn[1, 0].tolist() == [33, 102, 200] and (drawn[2] == 255).all()


def test_distances_are_the_mean_over_patches():
    """Uniform attention: the mean distance of two patches. All to one: the mean distance to it."""
    trained = make_tiny(VitConfig(**SIZES))
    places = 4 * np.stack(np.meshgrid(range(4), range(4), indexing="ij"), -1).reshape(16, 2)
    between = np.hypot(*(places[:, None] - places).transpose(2, 0, 1))
    hand = set_attention(trained, patch=6)
    # Every position looks for the patch, and not the class token alone.
    hand.params["encoder"]["layers"]["attention"]["query"]["kernel"][0, :, 1, 0] = 3
    hand.params["encoder"]["layers"]["attention"]["query"]["bias"][0, 1, 0] = 30
    measure = functools.partial(measure_distances, build(trained.run.model))
    found = measure(hand.params, np.zeros((2, 16, 16, 3), np.uint8))
    np.testing.assert_allclose(found[0], [between.mean(), between[6].mean()], rtol=1e-3)
