"""Keys and values that several query heads share: the formula, the cache, and what is refused."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.generation.cached_attention import apply_cached
from models.layers.attention import Attention
from models.layers.cache import DecodingStep, pad_cache
from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.layers.ops import attend
from models.layers.rotary import find_positions, make_rotation
from pretrain.kernels.attention import choice, plain

B, L, H, G, K = 2, 12, 6, 2, 4
OWN_KEYS_H = [0, 0, 0, 1, 1, 1]  # the key head of each query head
VALID = np.arange(L) < np.array([[L], [7]])


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def attend_by_head(q, k, v, visible):
    """Return the formula in float64, one query head at a time; visible: bool [B, L, M]."""
    out = np.zeros(q.shape)
    for h, g in enumerate(OWN_KEYS_H):
        scores = np.einsum("blk,bmk->blm", np.float64(q[:, :, h]), k[:, :, g]) / np.sqrt(q.shape[3])
        weights = np.where(visible, np.exp(scores), 0)
        out[:, :, h] = weights / weights.sum(-1, keepdims=True) @ v[:, :, g]
    return out


@pytest.fixture(scope="module")
def attention():
    """Return an attention with six query heads over two key heads, and its variables."""
    module = Attention(H, num_key_heads=G)
    variables = module.init(jax.random.key(0), jnp.ones((1, 2, H * K)))
    return module, jax.tree.map(lambda leaf: 10 * leaf, variables)


def test_each_head_reads_its_groups_keys(attention):
    module, variables = attention
    params, x = variables["params"], draw(B, L, H * K)
    shapes = {name: params[name]["kernel"].shape for name in ("query", "key", "value", "out")}
    assert shapes == {
        "query": (H * K, H, K),
        "key": (H * K, G, K),
        "value": (H * K, G, K),
        "out": (H, K, H * K),
    }
    q, k, v = (
        np.einsum("bld,dhk->blhk", x, params[name]["kernel"]) for name in ("query", "key", "value")
    )
    visible = np.broadcast_to(VALID[:, None], (B, L, L))
    expected = np.einsum("blhk,hkd->bld", attend_by_head(q, k, v, visible), params["out"]["kernel"])
    found = module.apply(variables, x, mask=make_padding_mask(jnp.asarray(VALID)))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_groups_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="6 query heads do not divide into groups for 4 key heads"):
        Attention(6, num_key_heads=4).init(jax.random.key(0), jnp.ones((1, 2, 12)))


MASKS = {
    "padding": lambda: make_padding_mask(jnp.asarray(VALID)),
    "causal": make_causal_mask,
    "window in blocks": lambda: Mask(window=4),
}
SHARED_DROP = KeyedDropout(jnp.arange(2, dtype=jnp.uint32), 0.3, (-2,))


@pytest.mark.parametrize("function", [plain.attend, plain.attend_in_parts])
@pytest.mark.parametrize("drop", [None, SHARED_DROP], ids=["whole", "dropped"])
@pytest.mark.parametrize("mask", MASKS)
def test_a_trainers_attention_and_its_gradients_are_the_plain_ones(
    monkeypatch, function, drop, mask
):
    """The gradient of a key is the sum over the heads that read it."""
    monkeypatch.setattr(plain, "MIN_MULTIPLICATIONS", 1)
    arrays = draw(B, L, H, K), draw(B, L, G, K, seed=1), draw(B, L, G, K, seed=2)
    weigh = draw(B, L, H, K, seed=3)

    def run(function, repeats):
        def compute_value(q, k, v):
            k, v = (jnp.repeat(x, repeats, axis=2) for x in (k, v))
            return (function(q, k, v, mask=MASKS[mask](), drop=drop) * weigh).sum()

        return jax.jit(jax.value_and_grad(compute_value, argnums=(0, 1, 2)))(*arrays)

    for found, expected in zip(*map(jax.tree.leaves, (run(function, 1), run(attend, H // G)))):
        np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_kernel_gets_the_keys_of_each_head(monkeypatch):
    """The choice alone: the devices of the mesh do not exist."""
    sizes = dict.fromkeys(("data", "fsdp", "sequence", "model"), 1)
    device = SimpleNamespace(platform="tpu", device_kind="TPU v4")
    mesh = SimpleNamespace(devices=np.array([device]), shape=sizes)
    calls = []
    kernels = [
        kernel._replace(attend=lambda *arrays, **options: calls.append(arrays) or arrays[0])
        for kernel in choice.KERNELS["tpu"]
    ]
    monkeypatch.setitem(choice.KERNELS, "tpu", kernels)
    q, k, v = (jnp.asarray(draw(2, 128, heads, 64), jnp.bfloat16) for heads in (H, G, G))
    chosen = choice.make_attend(mesh)
    chosen(q, k, v)
    chosen(q, k, v, drop=SHARED_DROP)
    (_, found_k, found_v), (_, _, dropped_v) = calls
    np.testing.assert_array_equal(found_k, np.asarray(k)[:, :, OWN_KEYS_H])
    np.testing.assert_array_equal(found_v, np.asarray(v)[:, :, OWN_KEYS_H])
    assert dropped_v.shape == (2, 128, H, 64)


def test_a_cache_has_the_key_heads_alone(attention):
    """Steps after a prompt of 5 compute what the whole row does, and write two heads, not six."""
    module, variables = attention
    x, turn = draw(B, L, H * K), partial(make_rotation, head_width=K, base=100.0)
    whole = module.apply(variables, x, mask=make_causal_mask(), rotation=turn(find_positions(L)))
    _, left = apply_cached(
        module,
        variables,
        x[:, :5],
        mask=make_causal_mask(),
        rotation=turn(find_positions(5)),
        mutable=["cache"],
    )
    cache = pad_cache(left, L)["cache"]
    assert {leaf.shape for leaf in jax.tree.leaves(cache)} == {(B, G, L, K)}

    @jax.jit
    def decode_step(cache, position_B):
        step = DecodingStep(position_B, L)
        token = jnp.take_along_axis(x, position_B[:, None, None], axis=1)
        settings = {"mask": make_causal_mask(step=step), "rotation": turn(position_B[:, None])}
        read = variables | {"cache": cache}
        found, left = apply_cached(module, read, token, **settings, mutable=["cache"])
        return found, left["cache"]

    for position in range(5, L):
        found, cache = decode_step(cache, jnp.full(B, position))
        np.testing.assert_allclose(found[:, 0], whole[:, position], atol=2e-5)
