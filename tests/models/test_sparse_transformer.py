"""The Sparse Transformer as in its paper: an independent computation, sizes, and decoding."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.sparse_transformer import SparseTransformerConfig
from models.sparse_transformer import make_pattern
from tests.models.decoders import check_continuation, check_packed_texts

TINY = SparseTransformerConfig(
    vocab=50, length=24, width=12, depth=2, num_heads=3, mlp=20, dropout=0.0, stride=4,
    summary=1, subblocks=2,
)  # fmt: skip
CONFIGS = {
    "fixed, merged": TINY,
    "fixed, interleaved": dataclasses.replace(TINY, merged=False),
    "strided, merged": dataclasses.replace(TINY, pattern="strided"),
    "strided, interleaved": dataclasses.replace(TINY, pattern="strided", merged=False),
}
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 18)).astype(np.int32)
for_configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


# ---- the equations of section 5, in NumPy ----------------------------------------


def normalize(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    return norm["bias"] + norm["scale"] * centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attend_by_formula(x_LD, weights, square_HLL):
    q, k, v = (
        np.einsum("ld,dhk->hlk", x_LD, weights[name]["kernel"]) + weights[name]["bias"][:, None]
        for name in ("query", "key", "value")
    )
    scores = np.einsum("hlk,hmk->hlm", q, k) / math.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(-1, keepdims=True)) * square_HLL
    mixed = np.einsum("hlm,hmk->lhk", exponentials / exponentials.sum(-1, keepdims=True), v)
    return np.einsum("lhk,hkd->ld", mixed, weights["out"]["kernel"]) + weights["out"]["bias"]


def compute_by_formula(config, params, tokens_L):
    """Return the logits of one row, float64: H = H + a(H) + b(H) (equations 12 to 16)."""
    table, i = params["embeddings"], np.arange(len(tokens_L))
    h_LD = (
        table["token_embedding"]["embedding"][tokens_L]
        + table["row_embedding"]["embedding"][i // config.stride]
        + table["column_embedding"]["embedding"][i % config.stride]
    )
    stack = params["decoder"]["layers"]
    layers = [
        jax.tree.map(lambda leaf, n=n: leaf[n], stack if config.merged else stack[part])
        for n in range(config.depth if config.merged else config.depth // 2)
        for part in (("both",) if config.merged else ("first", "second"))
    ]
    parts = ("both",) * config.depth if config.merged else ("first", "second") * (config.depth // 2)
    for layer, part in zip(layers, parts, strict=True):
        pattern = make_pattern(config, part)
        square = np.array(
            [pattern.is_visible(i[:, None], i, head) for head in range(config.num_heads)]
        )
        a = attend_by_formula(normalize(h_LD, layer["attention_norm"]), layer["attention"], square)
        mlp = layer["mlp"]
        hidden = normalize(h_LD + a, layer["mlp_norm"]) @ mlp["up"]["kernel"] + mlp["up"]["bias"]
        hidden /= 1 + np.exp(-1.702 * hidden)  # x sigmoid(1.702 x)
        h_LD = h_LD + a + hidden @ mlp["down"]["kernel"] + mlp["down"]["bias"]
    return normalize(h_LD, params["norm"]) @ params["lm_head"]["kernel"]


@pytest.mark.held_by(2)
@for_configs
def test_logits_are_those_of_the_equations(make, config):
    model, params = make(config)
    logits = jax.jit(model.apply)({"params": params}, TOKENS)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for found, tokens in zip(np.array(logits), TOKENS, strict=True):
        np.testing.assert_allclose(found, compute_by_formula(config, params, tokens), atol=2e-5)


# ---- sizes and initialisation ----------------------------------------------------


def test_the_initial_weights_are_those_of_section_6():
    """Standard deviations of 0.125 / sqrt(inputs); the output begins with the uniform guess."""
    config = dataclasses.replace(TINY, vocab=500, width=48, mlp=300, stride=24, length=480)
    init = jax.jit(build(config).init)
    params = jax.device_get(init(jax.random.key(0), TOKENS[:, :4])["params"])
    layer, tables, wide = params["decoder"]["layers"], params["embeddings"], math.sqrt(48)
    residual = 1 / math.sqrt(2 * config.depth)
    for leaf, std in (
        (tables["token_embedding"]["embedding"], 0.125 / wide),
        (tables["row_embedding"]["embedding"], 0.125 / wide / math.sqrt(2)),
        (tables["column_embedding"]["embedding"], 0.125 / wide / math.sqrt(2)),
        (layer["attention"]["query"]["kernel"], 0.125 / wide),
        (layer["attention"]["out"]["kernel"], 0.125 / wide * residual),
        (layer["mlp"]["up"]["kernel"], 0.125 / wide),
        (layer["mlp"]["down"]["kernel"], 0.125 / math.sqrt(300) * residual),
    ):
        np.testing.assert_allclose(leaf.std(), std, rtol=0.1)
    assert not params["lm_head"]["kernel"].any()


# ---- rows ------------------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("name", ["fixed, merged", "strided, interleaved"])
def test_a_continuation_is_the_plain_loop(make, name):
    """Each token is the likeliest of a call on the whole row, for prompts that end within and at
    the end of a block, up to the last of 24 positions.
    """
    model, params = make(CONFIGS[name])
    params = jax.tree.map(lambda leaf: 3 * np.array(leaf), params)
    check_continuation(model, params, TOKENS[:, :9], np.array([9, 4]), 15)


@pytest.mark.held_by(1)
@for_configs
def test_a_packed_text_reads_itself_alone(make, config):
    """Exactly: other tokens of the first text change no logit of the second."""
    model, params = make(config)
    found, alone = check_packed_texts(model, params, TOKENS)
    np.testing.assert_allclose(found[:, :7], alone[:, :7], atol=1e-5)


def test_sizes_that_do_not_fit_are_refused():
    def build_row(length, **settings):
        tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
        model = build(dataclasses.replace(TINY, **settings))
        return jax.eval_shape(model.init, jax.random.key(0), tokens)

    with pytest.raises(ValueError, match=r"a row of 25 tokens is longer than the 24 .*length"):
        build_row(25)
    with pytest.raises(ValueError, match=r"a depth of 3 is odd; with model.merged=false"):
        build_row(8, depth=3, merged=False)
    with pytest.raises(ValueError, match=r"5 subblocks of 1 positions do not fit into a block of"):
        build_row(8, subblocks=5)


@pytest.mark.held_by(1)
@for_configs
def test_the_number_of_rows_may_be_open(make, config):
    """`export --format jax` writes a program for any number of rows."""
    model, params = make(config)
    (rows,) = jax.export.symbolic_shape("B")
    tokens = jax.ShapeDtypeStruct((rows, 18), jnp.int32)
    logits = jax.eval_shape(model.apply, {"params": params}, tokens, tokens)
    assert str(logits.shape) == "(B, 18, 50)"
