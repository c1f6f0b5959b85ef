"""Stacking and unstacking layers is bit-exact in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.layer_layout import (
    flatten_params,
    match_layout,
    stack_layers,
    unflatten_params,
    unstack_layers,
)

pytestmark = pytest.mark.fast


def random_tree(dtype, as_array=np.asarray):
    """Return parameters with two stacks, one of them inside the other's neighbour, and leaves
    outside of both.
    """
    rng = np.random.default_rng(0)

    def draw_array(*shape):
        return as_array(rng.normal(size=shape).astype(dtype))

    return {
        "word": {"embedding": draw_array(5, 4)},
        "encoder": {"layers": {"mlp": {"kernel": draw_array(3, 4, 2), "bias": draw_array(3, 2)}}},
        "bert": {
            "decoder": {"layers": {"scale": draw_array(2, 4)}, "norm": {"scale": draw_array(4)}}
        },
    }


def assert_same_bits(one, other):
    one, other = flatten_params(one), flatten_params(other)
    assert one.keys() == other.keys()
    for path, leaf in one.items():
        assert leaf.dtype == other[path].dtype and leaf.shape == other[path].shape, path
        assert np.asarray(leaf).tobytes() == np.asarray(other[path]).tobytes(), path


@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_unstacked_layers_are_the_rows_of_stacked_ones(dtype, as_array):
    stacked = random_tree(dtype, as_array)
    unstacked = unstack_layers(stacked)
    assert set(unstacked["encoder"]) == {"layer_0", "layer_1", "layer_2"}
    assert set(unstacked["bert"]["decoder"]) == {"layer_0", "layer_1", "norm"}
    kernel = stacked["encoder"]["layers"]["mlp"]["kernel"]
    for i in range(3):
        np.testing.assert_array_equal(
            unstacked["encoder"][f"layer_{i}"]["mlp"]["kernel"], kernel[i]
        )
    layers = [unstacked["encoder"][f"layer_{i}"] for i in range(3)]
    assert_same_bits(stack_layers(layers), stacked["encoder"]["layers"])
    assert_same_bits(unstack_layers(unstacked), unstacked)


@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray])
def test_a_tree_takes_the_layout_of_another(as_array):
    stacked = random_tree(np.float32, as_array)
    unstacked = unstack_layers(stacked)
    for like in (stacked, unstacked):
        for params in (stacked, unstacked):
            assert_same_bits(match_layout(params | {"head": {"bias": 0}}, like), like)
    del unstacked["encoder"]["layer_1"]
    with pytest.raises(KeyError, match="encoder/layer_1/mlp"):
        match_layout(unstacked, stacked)


def test_layers_are_unstacked_within_a_jitted_function():
    stacked = random_tree(np.float32)
    assert_same_bits(jax.jit(unstack_layers)(stacked), unstack_layers(stacked))
    assert unflatten_params(flatten_params(stacked)).keys() == stacked.keys()
