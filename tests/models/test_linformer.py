"""Linformer as in its paper: the projection, its sharing, its cost, and what it refuses."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.bert import BertConfig
from models.config.classifier import ClassifierConfig
from models.config.linformer import LinformerConfig
from models.config.span_reader import SpanReaderConfig
from models.layers.attention import Attention
from models.layers.layer_layout import flatten_params, unflatten_params
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.linformer import LinformerAttention
from pretrain.config import load

SHARINGS = ("none", "headwise", "key-value", "layerwise")
N, R, D, H = 12, 4, 24, 3
SIZES = dict(vocab=50, length=N, width=D, depth=2, num_heads=H, mlp=40, segments=1)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def make_attention(sharing):
    """Return (module, its arguments, random parameters)."""
    make = np.random.default_rng(0).standard_normal
    model = LinformerAttention(H, length=N, rank=R, sharing=sharing)
    shared = {"projection": make((N, R)).astype(np.float32)} if sharing == "layerwise" else {}
    init = partial(model.init, jax.random.key(0), **shared)
    shapes = jax.eval_shape(init, jnp.ones((1, 2, D)))["params"]
    return model, shared, jax.tree.map(lambda leaf: make(leaf.shape).astype(np.float32), shapes)


# ---- the equation ----------------------------------------------------------------


def attend_by_the_paper(params, shared, x_LD):
    """Return equation 7 for one row without padding, head by head: W before E, as it is written."""
    one = params.get("projection", shared.get("projection"))
    outs = []
    for h in range(H):
        sides = []
        for name in ("key", "value"):
            E_NR = params.get(f"{name}_projection", one)
            if f"head_{name}_projection" in params:
                E_NR = params[f"head_{name}_projection"][h]
            linear = params[name]
            sides.append(E_NR[: len(x_LD)].T @ (x_LD @ linear["kernel"][:, h]) + linear["bias"][h])
        q_LK = x_LD @ params["query"]["kernel"][:, h] + params["query"]["bias"][h]
        weights_LR = softmax(q_LK @ sides[0].T / np.sqrt(D // H))
        outs.append(weights_LR @ sides[1] @ params["out"]["kernel"][h])
    return sum(outs) + params["out"]["bias"]


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sharing", SHARINGS)
def test_attention_is_that_of_the_paper(sharing):
    """Rows of 12, 7 and 0 tokens; padding is NaN, which nothing may read."""
    model, shared, params = make_attention(sharing)
    mask = np.arange(N) < np.array([12, 7, 0])[:, None]
    x_BND = np.random.default_rng(1).standard_normal((3, N, D)).astype(np.float32)
    noisy = np.where(mask[..., None], x_BND, np.nan).astype(np.float32)
    found = jax.jit(model.apply)({"params": params}, noisy, mask=make_padding_mask(mask), **shared)
    for row, length, x_ND in zip(np.array(found), (12, 7, 0), x_BND, strict=True):
        expected = attend_by_the_paper(params, shared, x_ND[:length])
        np.testing.assert_allclose(row[:length], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sharing", ["none", "layerwise"])
def test_the_number_of_padding_positions_changes_nothing(sharing):
    """A row of 7 tokens, with no padding and with 5 positions of it, reads the same rows of E."""
    model, shared, params = make_attention(sharing)
    params = jax.tree.map(lambda leaf: leaf / np.float32(np.sqrt(D)), params)  # states of 1 to 5
    x_BLD = np.random.default_rng(1).standard_normal((1, N, D)).astype(np.float32)
    mask = make_padding_mask(np.arange(N)[None] < 7)
    alone, padded = (
        jax.jit(model.apply)({"params": params}, x_BLD[:, :L], mask=own, **shared)[:, :7]
        for L, own in ((7, None), (N, mask))
    )
    np.testing.assert_allclose(alone, padded, rtol=1e-5, atol=1e-5)


@pytest.mark.held_by(1)
@pytest.mark.parametrize("sharing", SHARINGS)
def test_the_identity_as_projection_is_full_attention(make, sharing):
    """BERT's encoder, with the same parameters, has the same states."""
    full, params = make(BertConfig(**SIZES))
    config = LinformerConfig(**SIZES, rank=N, epsilon=1e-12, sharing=sharing)
    theirs, ours = flatten_params(params["bert"]), flatten_params(make(config)[1]["linformer"])
    assert {path.endswith("projection") for path in ours.keys() - theirs.keys()} == {True}
    merged = {
        path: theirs[path]
        if path in theirs
        else np.broadcast_to(np.eye(N, dtype=np.float32), leaf.shape)
        for path, leaf in ours.items()
    }
    ids = np.random.default_rng(0).integers(0, 50, (2, N)).astype(np.int32)
    arguments = (ids, np.ones((2, N), bool))
    expected, found = (
        jax.jit(partial(model.apply, method="encode"))({"params": tree}, *arguments)
        for model, tree in (
            (full, params),
            (build(config), {"linformer": unflatten_params(merged)}),
        )
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


# ---- sizes -----------------------------------------------------------------------


def list_leaves(config):
    model, ids = build(config), jnp.ones((1, 2), jnp.int32)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), ids, ids > 0))["params"]
    return jax.tree_util.tree_leaves_with_path(shapes)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(("sharing", "count"), [*zip(SHARINGS, (288, 24, 12, 1), strict=True)])
def test_the_number_of_projections(sharing, count):
    """Section 4 counts 24, 12 and 1 for 12 layers of 12 heads; unshared there are 2 of each head."""
    base = load("linformer_base").model
    leaves = list_leaves(dataclasses.replace(base, sharing=sharing))
    sizes = [leaf.size for path, leaf in leaves if path[-1].key.endswith("projection")]
    assert sum(sizes) == count * 512 * 256
    # RoBERTa-base, without the two rows of its position table that precede the first position
    assert sum(leaf.size for _, leaf in leaves) - sum(sizes) == 125_288_025 - 2 * 768


def test_projections_begin_with_the_variance_of_the_authors():
    """A Linear from N to R with Xavier's uniform and a gain of 1 / sqrt(2)."""
    for sharing in ("none", "key-value"):
        model = LinformerAttention(H, length=512, rank=128, sharing=sharing)
        init = jax.jit(model.init)
        params = jax.device_get(init(jax.random.key(0), np.ones((1, 2, D), np.float32))["params"])
        for name, leaf in params.items():
            if name.endswith("projection"):
                np.testing.assert_allclose(leaf.std(), 640**-0.5, rtol=0.02)


# ---- cost ------------------------------------------------------------------------


def measure_gradient(model, L, **shared):
    """Return (FLOPs, temporary bytes) of the compiled gradient of an attention to L positions."""
    x_BLD = jax.ShapeDtypeStruct((1, L, D), jnp.float32)
    params = jax.eval_shape(partial(model.init, jax.random.key(0), **shared), x_BLD)

    def compute_loss(params, x_BLD, shared):
        return jnp.square(model.apply(params, x_BLD, **shared)).sum()

    compiled = jax.jit(jax.grad(compute_loss, (0, 1, 2))).lower(params, x_BLD, shared).compile()
    return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("sharing", ["none", "layerwise"])
def test_time_and_memory_are_linear_in_the_length(sharing):
    """Of the compiled gradient at a rank of 8: four times the length takes four times the FLOPs and
    the temporary bytes; with full attention nearly sixteen times.
    """
    found = {}
    for L in (2_048, 8_192):
        shared = {"projection": np.ones((L, 8), np.float32)} if sharing == "layerwise" else {}
        model = LinformerAttention(H, length=L, rank=8, sharing=sharing)
        found[L] = np.array(
            [*measure_gradient(model, L, **shared), *measure_gradient(Attention(H), L)]
        )
    flops, temporary, full_flops, full_temporary = found[8_192] / found[2_048]
    assert max(flops, temporary) < 4.05
    assert min(full_flops, full_temporary) > 15


# ---- what is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    "mask",
    [
        make_causal_mask(),
        Mask(window=4),
        make_padding_mask(np.ones((1, 3), bool), np.ones((1, 3), np.int32)),
        np.ones((1, 1, 3, 3), bool),
    ],
    ids=["causal", "window", "packed", "pairs"],
)
def test_a_mask_that_hides_tokens_is_refused(mask):
    model, shared, params = make_attention("layerwise")
    with pytest.raises(
        ValueError, match=r"mixtures of all positions.*\(segment_ids\).*one text a row"
    ):
        model.apply({"params": params}, np.ones((1, 3, D), np.float32), mask=mask, **shared)


def test_packed_rows_are_refused(make):
    model, params = make(LinformerConfig(**SIZES, rank=R))
    ids = np.ones((1, 4), np.int32)
    with pytest.raises(ValueError, match="packed rows"):
        jax.eval_shape(partial(model.apply, segment_ids=ids), {"params": params}, ids, ids > 0)


def test_a_row_longer_than_the_projection_is_refused():
    model, shared, params = make_attention("layerwise")
    with pytest.raises(ValueError, match=r"a row of 13 tokens .* the 12 positions .*model\.length"):
        model.apply({"params": params}, np.ones((1, 13, D), np.float32), **shared)


def test_a_rank_above_the_length_is_refused(make):
    with pytest.raises(ValueError, match=r"rank of 13 \(model\.rank\) is above the 12 positions"):
        make(LinformerConfig(**SIZES, rank=13))


# ---- fine-tuning -----------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("kind", [ClassifierConfig, SpanReaderConfig])
def test_heads_read_the_encoder(make, kind):
    """A gradient reaches the projection through the head."""
    model, params = make(kind(encoder=LinformerConfig(**SIZES, rank=R)))
    ids = np.random.default_rng(0).integers(0, 50, (2, N)).astype(np.int32)
    grads = jax.jit(jax.grad(lambda params: model.apply({"params": params}, ids, ids > 0).std()))(
        params
    )
    assert abs(grads["encoder"]["linformer"]["projection"]).max() > 1e-6
