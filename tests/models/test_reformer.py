"""The Reformer as in its paper: what `transformers` computed, sizes, rows, decoding, bad input."""

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.activations import capture_activations
from models.config.reformer import Hashing, LocalChunks, ReformerConfig
from pretrain.convert.pretrained import CONVERTERS
from pretrain.training.flops import count_flops
from tests.models.decoders import check_continuation, check_packed_texts

TINY = ReformerConfig(
    vocab=50,
    width=24,
    depth=4,
    num_heads=3,
    head_width=5,
    mlp=40,
    dropout=0.0,
    layers=("local", "lsh"),
    hashing=Hashing(chunk=4, rounds=2, dropout=0.0),
    local=LocalChunks(chunk=4, dropout=0.0),
    axial_shape=(4, 8),
    axial_widths=(10, 14),
)
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 18)).astype(np.int32)


# ---- transformers ----------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_logits_are_those_of_transformers(golden, often, scan):
    """With the same rotations: rows shorter than a chunk, padded to chunks, and of whole chunks. Of
    layers that are not scanned, the board tries all lengths.
    """
    found, convert = golden("reformer"), CONVERTERS["reformer"]
    config = dataclasses.replace(convert.from_hf_config(found.config), scan=scan)
    assert config.layers == ("local", "lsh", "lsh") and config.hashing.buckets == (2, 4)
    model = build(config)
    fresh = jax.tree.map(
        lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype),
        jax.eval_shape(model.init, jax.random.key(0), TOKENS)["params"],
    )
    params, report = convert.from_hf(config, found.weights, fresh)
    assert report.missing == report.unused == () and len(found.inputs) == 4
    for length, ids in list(found.inputs.items())[: 4 if scan else often(2, 4)]:
        logits = jax.jit(model.apply)({"params": params}, ids)
        np.testing.assert_allclose(logits, found.outputs[length], atol=3e-5, err_msg=length)
    exported = convert.to_hf(config, params)
    copy = exported.pop("lm_head.bias"), found.weights.pop("lm_head.bias")
    np.testing.assert_array_equal(copy[0], exported["lm_head.decoder.bias"])
    assert exported.keys() == found.weights.keys()
    for name, tensor in found.weights.items():
        np.testing.assert_array_equal(exported[name], tensor, err_msg=name)
    found.weights["lm_head.bias"] = copy[1]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("is_decoder", None, "is_decoder is False; ReformerConfig knows only True"),
        ("attn_layers", ["local", "full"], "attn_layers is .*; expected 1 to 1,000 of local and ls"),
        ("attn_layers", [], "attn_layers is"),
        ("num_buckets", [4, "x"], "num_buckets is .*; expected a list of int"),
        ("num_buckets", 1 << 30, "num_buckets is .*; each must be from 2 to"),
        ("axial_pos_shape", [4, 4], "must multiply to it"),
        ("num_hashes", "two", "num_hashes is 'two'; expected int"),
        ("lsh_num_chunks_before", 2, "lsh_num_chunks_before is 2; ReformerConfig knows only 1"),
    ],
)  # fmt: skip
def test_settings_of_another_model_are_refused(golden, key, value, message):
    with pytest.raises(ValueError, match=message):
        CONVERTERS["reformer"].from_hf_config(golden("reformer").config | {key: value})


# ---- sizes -----------------------------------------------------------------------


def count_largest(jaxpr):
    """Return the number of elements of the largest array of a program, inner programs included."""
    inner = (part for one in jaxpr.eqns for part in jax.tree.leaves(one.params, is_leaf=is_program))
    own = (math.prod(out.aval.shape) for one in jaxpr.eqns for out in one.outvars)
    programs = (getattr(part, "jaxpr", part) for part in inner if is_program(part))
    return max([0, *own, *(count_largest(program) for program in programs)])


def is_program(leaf):
    return hasattr(leaf, "jaxpr") or hasattr(leaf, "eqns")


def test_a_gradient_grows_with_the_length_alone():
    """4 times the length: 4 times the FLOPs and the largest array; both 16 times for all pairs."""

    def trace(length, chunk):
        config = dataclasses.replace(
            TINY,
            axial_shape=(length // 8, 8),
            hashing=Hashing(chunk, rounds=2, buckets=(8,), dropout=0.0),
            local=LocalChunks(chunk, 0.0),
        )
        model, ids = build(config), jnp.zeros((1, length), jnp.int32)
        shapes = jax.eval_shape(model.init, jax.random.key(0), ids)["params"]
        how = {"train": True, "rngs": {"dropout": jax.random.key(0)}, "method": "compute_states"}
        program = jax.make_jaxpr(
            jax.grad(lambda params: model.apply({"params": params}, ids, **how).sum())
        )(shapes)
        return np.array([count_flops(program), count_largest(program.jaxpr)])

    np.testing.assert_allclose(trace(2048, 16) / trace(512, 16), 4, rtol=0.02)
    assert (trace(2048, 2048) / trace(512, 512) > (10, 15.9)).all()


# ---- rows ------------------------------------------------------------------------


def test_a_packed_text_reads_itself_alone(make):
    """Exactly: other tokens of the first text change no logit of the second."""
    model, params = make(TINY)
    check_packed_texts(model, params, TOKENS)


def test_rows_are_hashed_alike_in_evaluation_and_newly_in_training(make):
    """Without dropout, only rotations are drawn; a layer of local attention draws nothing."""
    score = jax.jit(
        lambda model, params, seed: model.apply(
            {"params": params}, TOKENS, train=True, rngs={"dropout": jax.random.key(seed)}
        ),
        static_argnums=0,
    )
    for layers, differs in ((("local", "lsh"), True), (("local",), False)):
        model, params = make(dataclasses.replace(TINY, layers=layers))
        one, again, other = (np.array(score(model, params, seed)) for seed in (0, 0, 1))
        np.testing.assert_array_equal(one, again)
        assert bool(np.abs(one - other).max() > 1e-3) == differs
        calm = jax.jit(model.apply)({"params": params}, TOKENS)
        assert bool(np.abs(one - calm).max() > 1e-3) == differs


def test_a_feed_forward_network_in_chunks_is_the_same(make):
    """With its gradients, for rows of 18 tokens in chunks of 5."""

    def compute_loss(params, model):
        return jnp.square(model.apply({"params": params}, TOKENS)).mean()

    config = dataclasses.replace(TINY, depth=2, layers=("local", "lsh"))
    model, params = make(config)
    chunked = build(dataclasses.replace(config, mlp_chunk=5))
    run = jax.jit(jax.value_and_grad(compute_loss), static_argnums=1)
    for found, expected in zip(
        *(jax.tree.leaves(run(params, each)) for each in (chunked, model)), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=2e-6 * max(1, np.abs(expected).max()))


def test_states_and_weights_of_layers_are_captured(make):
    """Of chunks: each query's weights sum to 1, and are 0 for later tokens and far chunks."""
    model, params = make(TINY)
    capture = jax.jit(partial(capture_activations, model, method="compute_states"))
    seen = jax.tree.map(np.array, capture(params, TOKENS))
    assert [leaf.shape for leaf in seen.hidden_states] == [(2, 18, 24)] * 4 + [(2, 18, 48)]
    weights, i = seen.attention_weights["attention"], np.arange(18)
    assert len(weights) == 4
    for layer in weights:
        np.testing.assert_allclose(layer.sum(-1), 1, atol=5e-3)
        assert not layer[..., i[:, None] < i].any()
    far = i // 4 < i[:, None] // 4 - 1
    assert not weights[0][..., far].any() and weights[1][..., far].any()
    own = np.diagonal(weights[1], axis1=-2, axis2=-1)  # a hashed layer avoids it
    assert (own[..., 0] > 0.99).all() and own.mean() < 0.5


# ---- decoding --------------------------------------------------------------------

WIDE = dataclasses.replace(TINY, hashing=Hashing(chunk=32), local=LocalChunks(32, 0.0))


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("config", "oracle", "prompt"),
    [
        (WIDE, WIDE, 9),
        (dataclasses.replace(TINY, depth=2, layers=("local",)), None, 9),
        (dataclasses.replace(TINY, depth=2, local=LocalChunks(32, 0.0)), WIDE, 4),
    ],
    ids=["one chunk", "local", "hashed"],
)
def test_a_continuation_is_the_plain_loop(make, config, oracle, prompt):
    """Each token is the likeliest of a call on the whole row, as far as a chunk holds the row or
    attention is local. A step of a hashed layer attends to all tokens before, as full attention.
    """
    model, params = make(config)
    params = jax.tree.map(lambda leaf: 3 * np.array(leaf), params)
    plain = build(dataclasses.replace(oracle or config, depth=config.depth))
    lengths = np.array([prompt, prompt - 1])
    check_continuation(model, params, TOKENS[:, :prompt], lengths, 15, plain=plain)


# ---- bad input -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axial_shape": (4, 4)}, r"a row of 18 tokens is longer than the 4 x 4 = 16 positions"),
        ({"axial_shape": (32,)}, r"axial positions of shape \(32,\) .*both must be two numbers"),
        ({"axial_widths": (10, 10)}, r"do not add up to the 24 of the model \(model.width\)"),
        ({"depth": 3}, r"a depth of 3 \(model.depth\) is not a multiple of the 2 layers local,lsh"),
        ({"layers": ()}, r"is not a multiple of the 0 layers"),
        ({"hashing": Hashing(chunk=6)}, r"chunks of 4 and of 6 tokens: one must be a multiple of"),
        ({"hashing": Hashing(chunk=4, buckets=(3,))}, r"\(3,\) buckets: each factor must be even"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings, message):
    model = build(dataclasses.replace(TINY, **settings))
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(model.init, jax.random.key(0), TOKENS)


def test_a_part_of_the_mlp_has_tokens_and_a_seed_may_be_0():
    with pytest.raises(ValueError, match="mlp_chunk is 0; it must be at least 1, or none"):
        dataclasses.replace(TINY, mlp_chunk=0)
    assert Hashing(seed=0).seed == 0


def test_the_number_of_rows_may_be_open(make):
    """`export --format jax` writes a program for any number of rows."""
    model, params = make(TINY)
    (rows,) = jax.export.symbolic_shape("B")
    tokens = jax.ShapeDtypeStruct((rows, 18), jnp.int32)
    logits = jax.eval_shape(model.apply, {"params": params}, tokens, tokens)
    assert str(logits.shape) == "(B, 18, 50)"
