"""Attention of a CPU in parts of the rows equals attention of all rows."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh as DeviceMesh

from models.layers.cache import DecodingStep
from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.layers.ops import drop_values
from pretrain.kernels.attention import plain
from pretrain.kernels.attention.choice import choose_plain_attend
from pretrain.kernels.attention.plain import attend, attend_in_parts
from pretrain.kernels.hash_dropout import drop_by_hash
from pretrain.mesh.sharding import AXES

B, L, H, K = 6, 6, 2, 8
KEY = jnp.array([7, 11], jnp.uint32)
LENGTHS = jnp.array([6, 3, 5, 1, 2, 6])
TOKENS = jnp.arange(L) < LENGTHS[:, None]
SEGMENTS = jnp.array(
    [[1, 1, 1, 2, 2, 2], [1, 2, 2, 3, 3, 3], [1] * 6, [1, 1, 2, 2, 3, 3]] + [[1] * 6] * 2
)


def draw_normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), jnp.float32)


def make_drop(*broadcast_dims, drop_fn=drop_by_hash):
    return KeyedDropout(KEY, 0.4, broadcast_dims, drop_fn)


CASES = {
    "nothing": {},
    "padding": {"mask": make_padding_mask(TOKENS)},
    "segments, causal": {"mask": make_causal_mask(TOKENS, SEGMENTS)},
    "ranks": {"mask": Mask(ranks=(SEGMENTS, SEGMENTS[:, ::-1]))},
    "an array of each row": {"mask": TOKENS[:, None, None, :]},
    "an array of pairs, as many queries as rows": {"mask": jnp.tril(jnp.ones((L, L), bool))},
    "a bias of each row": {"bias": draw_normal(3, B, H, L, L)},
    "a bias of all rows": {"bias": draw_normal(3, 1, H, L, L), "scale": 1.0},
    "dropout": {"drop": make_drop()},
    "dropout of keys": {"drop": make_drop(-2), "mask": make_padding_mask(TOKENS)},
}
WHOLE = {
    "an odd number of rows": (3, {}),
    "a decoding step": (B, {"mask": Mask(causal=True, step=DecodingStep(LENGTHS - 1, L))}),
    "a window in blocks": (B, {"mask": Mask(causal=True, window=2)}),
    "draws of another kind": (B, {"drop": make_drop(drop_fn=drop_values)}),
    "draws that rows share": (B, {"drop": make_drop(0)}),
}


@pytest.fixture
def splits_all(monkeypatch):
    monkeypatch.setattr(plain, "MIN_MULTIPLICATIONS", 0)


def find_scored_rows(function, *arrays):
    """Return the numbers of rows whose products a function computes at a time."""
    text = str(jax.make_jaxpr(function)(*arrays))
    return {int(rows) for rows in re.findall(r"f32\[(\d+),[\d,]+\] = dot_general", text)}


@pytest.mark.held_by(3)
@pytest.mark.parametrize("name", CASES)
def test_parts_have_the_values_and_gradients_of_all_rows(splits_all, name):
    options = dict(CASES[name])
    bias = options.pop("bias", None)
    arrays = (*(draw_normal(seed, B, L, H, K) for seed in range(3)), bias)

    def compute(function):
        def compute_sum(q, k, v, bias):
            y = function(q, k, v, bias=bias, **options)
            return (y * draw_normal(4, B, L, H, K)).sum(), y

        argnums = (0, 1, 2) if bias is None else (0, 1, 2, 3)
        gradients, y = jax.jit(jax.grad(compute_sum, argnums, has_aux=True))(*arrays)
        return y, *gradients

    for found, expected in zip(compute(attend_in_parts), compute(attend), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    found = find_scored_rows(lambda *qkv: attend_in_parts(*qkv, bias=bias, **options), *arrays[:3])
    assert found == {B // 2}


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", WHOLE)
def test_what_parts_cannot_compute_is_computed_whole(splits_all, name):
    rows, options = WHOLE[name]
    queries = draw_normal(0, rows, 1 if "step" in name else L, H, K)
    keys = draw_normal(1, rows, L, H, K)
    found, expected = (f(queries, keys, keys, **options) for f in (attend_in_parts, attend))
    np.testing.assert_array_equal(found, expected)
    found = find_scored_rows(lambda q, k: attend_in_parts(q, k, k, **options), queries, keys)
    assert found == {rows}


def test_small_products_are_not_split():
    q = draw_normal(0, B, L, H, K)
    assert find_scored_rows(attend_in_parts, q, q, q) == {B}


@pytest.mark.parametrize(("num_devices", "expected"), [(1, attend_in_parts), (2, attend)])
def test_one_cpu_device_splits(num_devices, expected):
    devices = np.array(jax.devices("cpu")[:num_devices]).reshape(-1, 1, 1, 1)
    assert choose_plain_attend(DeviceMesh(devices, AXES)) is expected
