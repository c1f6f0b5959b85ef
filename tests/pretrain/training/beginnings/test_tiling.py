"""`train --from --tile`: a larger ModernBERT begun from a smaller one."""

import dataclasses

import jax
import numpy as np
import pytest

from models.config.bert import BertConfig
from models.config.modernbert import ModernBertConfig
from models.config.modernbert_decoder import ModernBertDecoderConfig
from pretrain.api import train
from pretrain.convert.pretrained import CONVERTERS
from pretrain.families import FAMILIES
from pretrain.settings.overrides import ConfigError
from pretrain.training.beginnings.tiling import check_tiling, tile, tile_params
from tests.pretrain.convert.test_name_maps import random_params

FAMILY = FAMILIES["modernbert"]
SMALL = ModernBertConfig(vocab=11, length=8, width=12, depth=4, num_heads=3, mlp=10)
LARGE = dataclasses.replace(SMALL, width=28, depth=9, num_heads=7, mlp=17)


def walk_from_the_middle(weight, size):
    """Return rows from the middle outwards, one at a time, as the authors' loops."""
    small = len(weight)
    first = (size - small) // 2
    rows = {first + i: weight[i] for i in range(small)}
    for i in range(first):  # to the left: the last one again, then the one before it
        rows[first - 1 - i] = weight[small - 1 - i % small]
    for i in range(first + small, size):
        rows[i] = weight[(i - first) % small]
    return np.stack([rows[i] for i in range(size)])


def tile_matrix(weight, shape):
    columns = walk_from_the_middle(weight.T, shape[1]).T
    return walk_from_the_middle(columns, shape[0])


def tile_tensors(small, large):
    """Return the tensors of a larger model by their names in transformers: the oracle."""
    found = {}
    for name, initial in large.items():
        parts = name.split(".")
        source = name
        if parts[1] == "layers":
            # Beyond twice the depth the authors' index runs over the end.
            layer = min(round(int(parts[2]) * 4 / 9), 3)
            source = ".".join(["model.layers", str(layer), *parts[3:]])
        if source not in small:  # the first layer has no norm: the others' stays as it is
            found[name] = initial
            continue
        weight = small[source]
        fused = {"Wqkv": 3, "Wi": 2}.get(parts[-2], 1)
        shape = (len(initial) // fused, *initial.shape[1:])
        whole = [
            tile_matrix(part, shape) if part.ndim == 2 else walk_from_the_middle(part, shape[0])
            for part in np.split(weight, fused)
        ]
        found[name] = np.concatenate(whole)
    return found


@pytest.mark.parametrize("scan", [True, False])
def test_tiled_weights_are_the_authors(scan):
    """By their tensors: queries, keys, values and both halves of Wi by themselves."""
    large = dataclasses.replace(LARGE, scan=scan)
    params, initial = random_params(SMALL), random_params(large, seed=1)
    converter = CONVERTERS["modernbert"]
    found = converter.to_hf(large, tile_params(FAMILY, large, SMALL, params, initial))
    expected = tile_tensors(converter.to_hf(SMALL, params), converter.to_hf(large, initial))
    assert found.keys() == expected.keys()
    same = [
        name for name in found if np.array_equal(found[name], converter.to_hf(large, initial)[name])
    ]
    assert same == ["model.layers.1.attn_norm.weight"]
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_the_weight_is_in_the_middle_and_on_both_sides():
    weight = np.arange(1, 10).reshape(3, 3)
    assert tile(weight, (5, 5)).tolist() == [
        [9, 7, 8, 9, 7],
        [3, 1, 2, 3, 1],
        [6, 4, 5, 6, 4],
        [9, 7, 8, 9, 7],
        [3, 1, 2, 3, 1],
    ]
    assert tile(np.array([1, 2, 3]), (8,)).tolist() == [2, 3, 1, 2, 3, 1, 2, 3]


def test_equal_sizes_change_nothing():
    params = random_params(SMALL)
    again = tile_params(FAMILY, SMALL, SMALL, params, random_params(SMALL, seed=1))
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_the_twin_begins_with_tiled_weights_too():
    decoder = ModernBertDecoderConfig(
        **{
            field.name: getattr(LARGE, field.name)
            for field in dataclasses.fields(ModernBertDecoderConfig)
        }
    )
    params, initial = random_params(SMALL), random_params(LARGE, seed=1)
    twin = FAMILIES["modernbert_decoder"]
    check_tiling(twin, decoder, SMALL)
    found = tile_params(twin, decoder, SMALL, params, initial)
    expected = tile_params(FAMILY, LARGE, SMALL, params, initial)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(width=8, num_heads=2), "model.width=8 is smaller than the 12"),
        (dict(mlp=9), "model.mlp=9 is smaller than the 10"),
        (dict(depth=3), "model.depth=3 is smaller than the 4"),
        (dict(width=30, num_heads=5), "heads are 6 wide, and 4 .* set model.width to .* x 4"),
        (dict(width=24, num_heads=6), "set model.num_heads to 5 or 7, and model.width to 4 for"),
        (dict(global_every=2), "model.global_every=2, and 3 in the given model"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        check_tiling(FAMILY, dataclasses.replace(LARGE, **change), SMALL)


def test_other_families_are_refused():
    config = BertConfig()
    with pytest.raises(ConfigError, match="a BertConfig cannot begin with tiled weights"):
        check_tiling(FAMILIES["bert"], config, config)


def test_tile_needs_a_model():
    with pytest.raises(ValueError, match="--tile: name the smaller model by --from"):
        train("modernbert_tiny", "nowhere", tile=True)
