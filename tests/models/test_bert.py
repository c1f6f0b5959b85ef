"""BERT is what its paper says: its sizes, what it reads, where it drops, and the same however it is computed."""

import dataclasses
from functools import partial

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.bert import BertConfig
from models.layers.attention import attend

LENGTHS = np.array([12, 7, 4])
VALID = np.arange(12) < LENGTHS[:, None]
TOKENS = np.where(VALID, np.random.default_rng(0).integers(1, 50, (3, 12)), 0).astype(np.int32)
SEGMENTS = (VALID & (np.arange(12) >= 3)).astype(np.int32)
POSITIONS = np.array([[1, 5, 11], [0, 2, 6], [1, 2, 3]], np.int32)
LARGE = BertConfig(width=1024, depth=24, num_heads=16, mlp=4096)


def shapes(config):
    ids = jnp.ones((1, 2), jnp.int32)
    return jax.eval_shape(lambda: build(config).init(jax.random.key(0), ids, ids > 0))["params"]


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_published_sizes():
    """Base with its pooler and both heads, the tied table once: 110,106,428. Large without heads: 335,141,888."""
    assert size(shapes(BertConfig())) == size(shapes(BertConfig(scan=False))) == 110_106_428
    assert size(shapes(LARGE)["bert"]) == 335_141_888


def test_initialisation():
    """Normal of 0.02 cut at two deviations, not rescaled; biases 0, norms 1."""
    config = BertConfig(vocab=300, length=64, width=64, depth=2, num_heads=4, mlp=200)
    ids = jnp.ones((1, 2), jnp.int32)
    params = jax.jit(lambda: build(config).init(jax.random.key(0), ids, ids > 0)["params"])()
    for path, leaf in flax.traverse_util.flatten_dict(params, sep="/").items():
        if path.endswith("bias"):
            assert not leaf.any(), path
        elif path.endswith("scale"):
            assert (leaf == 1).all(), path
        else:
            tolerance = 0.03 if leaf.size > 5_000 else 0.2
            assert abs(leaf).max() <= 0.04 and abs(leaf.std() / 0.017593 - 1) < tolerance, path


@pytest.fixture(scope="module")
def hidden(make, bert_config):
    """hidden(tokens, valid, segments) -> (states, pooled) of the tiny model."""
    model, params = make(bert_config)
    return jax.jit(partial(model.apply, {"params": params}, method="encode"))


def test_every_position_reads_both_ways(hidden):
    """Section 1: left and right context jointly. One word changes every state of its own row, and of no other."""
    states, _ = hidden(TOKENS, VALID, SEGMENTS)
    for position in (0, 5, 11):
        other = TOKENS.copy()
        other[0, position] = (TOKENS[0, position] + 7) % 50
        changed = np.abs(hidden(other, VALID, SEGMENTS)[0] - states).max(-1)
        assert (changed[0] > 1e-4).all() and not changed[1:].any()


def test_padding_is_never_read(hidden):
    states, pooled = hidden(TOKENS, VALID, SEGMENTS)
    noise = np.where(VALID, TOKENS, 17).astype(np.int32)
    other, other_pooled = hidden(noise, VALID, SEGMENTS)
    np.testing.assert_array_equal(
        np.where(VALID[..., None], other, 0), np.where(VALID[..., None], states, 0)
    )
    np.testing.assert_array_equal(other_pooled, pooled)
    short, _ = hidden(TOKENS[2:, :4], VALID[2:, :4], SEGMENTS[2:, :4])
    np.testing.assert_allclose(short, states[2:, :4], atol=2e-6)


def test_order_and_segment_matter(hidden):
    states, pooled = hidden(TOKENS, VALID, SEGMENTS)
    assert not np.allclose(hidden(TOKENS, VALID, 1 - SEGMENTS)[0], states, atol=1e-2)
    np.testing.assert_array_equal(
        hidden(TOKENS, VALID)[0], hidden(TOKENS, VALID, np.zeros_like(TOKENS))[0]
    )
    turned = TOKENS.copy()
    turned[0] = TOKENS[0, ::-1]
    backwards = hidden(turned, VALID, np.zeros_like(SEGMENTS))[0][0, ::-1]
    assert not np.allclose(backwards, hidden(TOKENS, VALID)[0][0], atol=1e-2)


def test_words_are_scored_at_the_gathered_positions_only(make, bert_config):
    model, params = make(bert_config)
    run = partial(model.apply, {"params": params})
    both = jax.jit(lambda *read: (run(*read), run(*read, POSITIONS)))
    (everywhere, following), (gathered, same) = both(TOKENS, VALID, SEGMENTS)
    assert (
        everywhere.shape == (3, 12, 50)
        and gathered.shape == (3, 3, 50)
        and following.shape == (3, 2)
    )
    np.testing.assert_allclose(
        gathered, np.take_along_axis(everywhere, POSITIONS[..., None], 1), atol=1e-5
    )
    np.testing.assert_allclose(same, following, atol=1e-6)
    ops = str(jax.make_jaxpr(run)(TOKENS, VALID, SEGMENTS, POSITIONS))
    assert "f32[3,3,50]" in ops and "f32[3,12,50]" not in ops


def test_word_head_is_tied_to_the_words(make, bert_config):
    """A word that no row holds has one weight to be found by: its own embedding."""
    model, params = make(bert_config)
    tokens = np.where(TOKENS == 9, 8, TOKENS)
    run = jax.jit(lambda params: model.apply({"params": params}, tokens, VALID)[0])
    before = run(params)
    table = params["bert"]["embeddings"]["token_embedding"]["embedding"]
    moved = jax.tree.map(lambda leaf: leaf, params)
    moved["bert"]["embeddings"]["token_embedding"]["embedding"] = table.at[9].add(1.0)
    after = run(moved)
    assert (np.abs(after - before).max((0, 1)) > 1e-2).tolist() == [word == 9 for word in range(50)]


def test_next_sentence_reads_the_first_position(make, bert_config, hidden):
    model, params = make(bert_config)
    states, pooled = hidden(TOKENS, VALID, SEGMENTS)
    pooler, following = params["bert"]["pooler"], params["next_sentence_head"]
    np.testing.assert_allclose(
        pooled, np.tanh(states[:, 0] @ pooler["kernel"] + pooler["bias"]), atol=1e-5
    )
    _, logits = jax.jit(model.apply)({"params": params}, TOKENS, VALID, SEGMENTS)
    np.testing.assert_allclose(logits, pooled @ following["kernel"] + following["bias"], atol=1e-5)


def score(model, params, **kw):
    """One number that every output enters, and its gradients."""

    def f(params):
        words, following = model.apply({"params": params}, TOKENS, VALID, SEGMENTS, POSITIONS, **kw)
        return jnp.square(jax.nn.log_softmax(words)[..., :7]).mean() + jnp.square(following).mean()

    return jax.jit(jax.value_and_grad(f))(params)


@pytest.fixture(scope="module")
def scored(make, bert_config):
    return score(*make(bert_config))


@pytest.mark.parametrize(("scan", "remat"), [(True, True), (False, False)])
def test_scan_and_remat_change_nothing(make, bert_config, scored, unroll, scan, remat):
    (_, params), (value, grads) = make(bert_config), scored
    other = build(dataclasses.replace(bert_config, scan=scan, remat=remat))
    arrange = (
        (lambda tree: tree) if scan else partial(unroll, depths={"bert/encoder": bert_config.depth})
    )
    found, by_params = score(other, arrange(params))
    np.testing.assert_allclose(found, value, rtol=1e-6)
    jax.tree.map(
        partial(np.testing.assert_allclose, rtol=2e-4, atol=5e-6), by_params, arrange(grads)
    )
    reached = flax.traverse_util.flatten_dict(grads)
    smallest = min(
        abs(leaf).max() for path, leaf in reached.items() if path[-2:] != ("key", "bias")
    )  # a key's is 0
    assert smallest > 1e-5, "a parameter that no gradient reaches would be compared with nothing"


@pytest.mark.parametrize(
    ("dropout", "attention_dropout", "outside", "a_layer"),
    [(0.1, 0.0, 1, 2), (0.0, 0.1, 0, 1), (0.0, 0.0, 0, 0)],
)
def test_dropout_falls_where_the_paper_drops(
    bert_config, dropouts, dropout, attention_dropout, outside, a_layer
):
    """After the embeddings, and in each layer on the weights and on what each of its two parts adds (appendix A.2)."""
    c = dataclasses.replace(
        bert_config, dropout=dropout, attention_dropout=attention_dropout, scan=False
    )
    run = partial(
        build(c).init_with_output,
        {"params": jax.random.key(0), "dropout": jax.random.key(0)},
        TOKENS,
        VALID,
    )
    assert dropouts(partial(run, train=True)) - dropouts(run) == outside + a_layer * c.depth


def test_randomness_only_when_training(make, bert_config):
    model, params = make(bert_config)
    run = jax.jit(
        partial(model.apply, {"params": params}, TOKENS, VALID, SEGMENTS), static_argnames="train"
    )
    calm, _ = run()
    np.testing.assert_array_equal(calm, run()[0])
    one, again, other = (
        run(train=True, rngs={"dropout": jax.random.key(seed)})[0] for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other, atol=1e-2) and not np.allclose(one, calm, atol=1e-2)
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        run(train=True)


@pytest.mark.parametrize("scan", [True, False])
def test_activations_follow_the_parameters_type(make, bert_config, scan):
    """With bfloat16 parameters, hidden states and gradients are bfloat16; logits are float32."""
    model, params = make(dataclasses.replace(bert_config, scan=scan))
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    states, pooled = jax.eval_shape(
        partial(model.apply, method="encode"), {"params": low}, TOKENS, VALID, SEGMENTS
    )
    words, following = jax.eval_shape(model.apply, {"params": low}, TOKENS, VALID, SEGMENTS)
    assert (
        states.dtype == pooled.dtype == jnp.bfloat16
        and words.dtype == following.dtype == jnp.float32
    )
    train = partial(score, model, train=True, rngs={"dropout": jax.random.key(0)})
    _, grads = jax.eval_shape(train, low)
    assert {leaf.dtype for leaf in jax.tree.leaves(grads)} == {jnp.dtype(jnp.bfloat16)}


def test_bfloat16_is_near_float32(make, bert_config):
    model, params = make(bert_config)
    run = jax.jit(lambda params: model.apply({"params": params}, TOKENS, VALID, SEGMENTS)[0])
    words, exact = run(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)), run(params)
    assert np.square(words - exact).mean() ** 0.5 < 0.03 * exact.std()


def test_a_row_of_padding_alone_is_finite(make, bert_config):
    """Such rows fill a batch up, with weight 0."""
    model, params = make(bert_config)

    def f(params):
        words, following = model.apply({"params": params}, TOKENS * 0, VALID & False)
        return (0.0 * words).sum() + following.sum()

    value, grads = jax.jit(jax.value_and_grad(f))(params)
    assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_a_row_longer_than_the_positions_is_refused(make, bert_config):
    model, params = make(bert_config)
    ids = jnp.ones((1, bert_config.length + 1), jnp.int32)
    with pytest.raises(ValueError, match=r"33 tokens is longer than the 32 positions"):
        model.apply({"params": params}, ids, ids > 0)


def test_a_trainers_parts_reach_every_layer(make, bert_config):
    config = dataclasses.replace(bert_config, scan=False)
    _, params = make(config)
    seen, read = [], []
    model = build(
        config,
        constrain=lambda x: seen.append(x.shape) or x,
        attend=lambda q, k, v, **kw: read.append(kw) or attend(q, k, v, **kw),
    )
    jax.eval_shape(model.apply, {"params": params}, TOKENS, VALID)
    assert seen == [(3, 12, 24)] * config.depth
    assert [kw["mask"].causal for kw in read] == [False] * config.depth
