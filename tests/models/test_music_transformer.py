"""The Music Transformer as in its paper: an independent computation, sizes, memory, decoding."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config.music_transformer import MusicTransformerConfig
from tests.models.decoders import check_continuation

TINY = MusicTransformerConfig(
    **dict(vocab=50, width=12, depth=2, num_heads=3, head_width=5, mlp=20, max_distance=6),
    dropout=0.0,
    attention_dropout=0.0,
)
CONFIGS = {"relative": TINY, "absolute": dataclasses.replace(TINY, relative=False)}
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 18)).astype(np.int32)
for_configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


# ---- the equations of section 3, in NumPy, with an embedding for each pair -------


def normalize(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    return norm["bias"] + norm["scale"] * centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def attend_by_formula(x_LD, weights):
    q, k, v = (
        np.einsum("ld,dhk->hlk", x_LD, weights[name]["kernel"])
        for name in ("query", "key", "value")
    )
    scores = np.einsum("hlk,hmk->hlm", q, k)
    i = np.arange(len(x_LD))
    if "relative_embedding" in weights:
        e_RHK = weights["relative_embedding"]
        pairs_LMHK = e_RHK[np.clip(i[:, None] - i, 0, len(e_RHK) - 1)]
        scores += np.einsum("hlk,lmhk->hlm", q, pairs_LMHK)
    exponentials = np.exp(scores / math.sqrt(q.shape[-1])) * (i[:, None] >= i)
    mixed = np.einsum("hlm,hmk->lhk", exponentials / exponentials.sum(-1, keepdims=True), v)
    return np.einsum("lhk,hkd->ld", mixed, weights["out"]["kernel"])


def compute_by_formula(config, params, tokens_L):
    """Return the logits of one row, float64."""
    table_VD, D = params["token_embedding"]["embedding"], config.width
    angles = np.arange(len(tokens_L))[:, None] / 10_000.0 ** (np.arange(0, D, 2) / D)
    h_LD = math.sqrt(D) * table_VD[tokens_L] + np.concatenate([np.sin(angles), np.cos(angles)], 1)
    for n in range(config.depth):
        layer = jax.tree.map(lambda leaf, n=n: leaf[n], params["decoder"]["layers"])
        h_LD = h_LD + attend_by_formula(
            normalize(h_LD, layer["attention_norm"]), layer["attention"]
        )
        up, down = layer["mlp"]["up"], layer["mlp"]["down"]
        hidden = np.maximum(normalize(h_LD, layer["mlp_norm"]) @ up["kernel"] + up["bias"], 0)
        h_LD = h_LD + hidden @ down["kernel"] + down["bias"]
    return normalize(h_LD, params["norm"]) @ table_VD.T


@pytest.mark.held_by(1)
@for_configs
def test_logits_are_those_of_the_equations(make, config):
    """Rows of 18 events are longer than the 6 distances, so that the longest is clipped."""
    model, params = make(config)
    logits = jax.jit(model.apply)({"params": params}, TOKENS)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for found, tokens in zip(logits, TOKENS, strict=True):
        np.testing.assert_allclose(found, compute_by_formula(config, params, tokens), atol=3e-5)


def test_no_array_has_an_axis_of_pairs_and_one_of_features(make):
    """Section 3.4.1: the memory of the distances is L D, not L^2 D, forward and backward."""
    L, (model, params) = 40, make(TINY)
    tokens = jnp.zeros((1, L), jnp.int32)

    def compute_loss(params):
        return model.apply({"params": params}, tokens).sum()

    def list_sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (math.prod(value.aval.shape) for value in equation.outvars)
            for part in jax.tree.leaves(equation.params):
                if hasattr(part, "jaxpr"):
                    yield from list_sizes(part.jaxpr)

    largest = max(list_sizes(jax.make_jaxpr(jax.grad(compute_loss))(params).jaxpr))
    scores = TINY.depth * TINY.num_heads * L * (L + 1)  # of all layers
    assert largest <= scores < L * L * TINY.num_heads * TINY.head_width * TINY.depth


@pytest.mark.held_by(1)
@for_configs
def test_a_continuation_is_the_plain_loop(make, config):
    """Each event is the likeliest of a call on the whole row, beyond the longest distance."""
    model, params = make(config)
    params = {"decoder": jax.tree.map(lambda leaf: 3 * leaf, params["decoder"])} | {
        key: params[key] for key in ("token_embedding", "norm")
    }
    check_continuation(model, params, TOKENS[:, :9], np.array([9, 4]), 15)


def test_the_distances_of_a_relative_model_learn(make):
    """A distance that a row has gets a gradient in each head, and no other does."""
    config = dataclasses.replace(TINY, max_distance=30)
    model, params = make(config)
    loss = jax.jit(jax.grad(lambda p: (model.apply({"params": p}, TOKENS) ** 2).mean()))
    gradient = loss(params)["decoder"]["layers"]["attention"]["relative_embedding"]
    changes = np.abs(np.asarray(gradient)).max(-1)
    assert (changes[:, :18] > 0).all() and not changes[:, 18:].any()
