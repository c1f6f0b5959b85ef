"""Transformer-XL as in its paper: what `transformers` computed, sizes, memory, and its options."""

import dataclasses
import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import build
from models.config.transformer_xl import Clusters, TransformerXLConfig
from models.generation.decoding import continue_prompts
from models.layers.adaptive_softmax import AdaptiveEmbedding
from models.layers.relative.distance_bias import score_distances, shift_scores, shift_step_scores
from models.layers.relative.relative_attention import (
    SEGMENT_MEMORY,
    RelativeAttention,
    RelativePositions,
    embed_distances,
)
from pretrain.convert.pretrained import CONVERTERS

GOLDENS = ("transformer_xl", "transformer_xl_large", "transformer_xl_characters")
SHAPE = dict(vocab=50, width=24, depth=2, num_heads=3, head_width=5, mlp=40, memory=16, dropout=0.0)
XL = TransformerXLConfig(**SHAPE, clusters=Clusters((12, 30), 2))
TOKENS = np.random.default_rng(0).integers(0, 50, (3, 16)).astype(np.int32)


@partial(jax.jit, static_argnums=0)
def run_row(model, params, token_ids):
    """Return the log-probabilities of a row that is read alone."""
    return model.apply({"params": params}, token_ids)


def run_from(model, params, start):
    """Return the log-probabilities of `TOKENS` from `start` on, after which the row's first tokens
    follow: one program reads all that begin somewhere, for no position reads a later one.
    """
    return np.array(run_row(model, params, np.roll(TOKENS, -start, axis=1)))


@partial(jax.jit, static_argnums=0)
def run_segment(model, params, token_ids, memory=None, **inputs):
    """Return (log-probabilities, the memory after the segment)."""
    variables = {"params": params, **(memory or {})}
    return model.apply(variables, token_ids, mutable=[SEGMENT_MEMORY], **inputs)


def run_segments(model, params, token_ids, length, **inputs):
    """Return the log-probabilities of a row that is read in segments of `length`."""
    memory, found = None, []
    for start in range(0, token_ids.shape[1], length):
        own = {key: value[:, start : start + length] for key, value in inputs.items()}
        logits, memory = run_segment(
            model, params, token_ids[:, start : start + length], memory, **own
        )
        found.append(logits)
    return np.concatenate(found, axis=1)


# ---- transformers ----------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("name", GOLDENS)
def test_two_segments_equal_those_of_transformers(golden, name, scan):
    """The second one reads the memory of the first."""
    found, convert = golden(name), CONVERTERS["transfo-xl"]
    config = dataclasses.replace(convert.from_hf_config(found.config), scan=scan)
    model, token_ids = build(config), found.inputs["token_ids"]
    fresh = jax.tree.map(
        lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype),
        jax.eval_shape(lambda: model.init(jax.random.key(0), token_ids))["params"],
    )
    params, report = convert.from_hf(config, found.weights, fresh)
    assert report.missing == report.unused == ()
    run = jax.jit(partial(run_segment, model, params))
    first, memory = run(token_ids[:, :5])
    second, _ = run(token_ids[:, 5:], memory)
    np.testing.assert_allclose(first, found.outputs["first"], atol=2e-5)
    np.testing.assert_allclose(second, found.outputs["second"], atol=2e-5)
    exported = convert.to_hf(config, params)
    for key, tensor in found.weights.items():
        np.testing.assert_allclose(exported.pop(key), tensor, rtol=1e-6, err_msg=key)
    assert all("dec_attn.r_" in key for key in exported)  # biases once more for each layer


# ---- sizes -----------------------------------------------------------------------


def count_parameters(config):
    model = build(config)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.ones((1, 2), jnp.int32)))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))


# ---- relative positions ----------------------------------------------------------


def shift_naively(q_BLHK, r_NHK, xp=np):
    """Return scores by key from an array [L, N, H, K] of each pair's own embedding; `xp` computes
    it.
    """
    L, N = q_BLHK.shape[1], len(r_NHK)
    distance_LN = N - L + np.arange(L)[:, None] - np.arange(N)
    r_LNHK = r_NHK[np.clip(N - 1 - distance_LN, 0, N - 1)]
    return xp.einsum("blhk,lnhk->bhln", q_BLHK, r_LNHK)


@pytest.mark.parametrize(("L", "N"), [(1, 1), (1, 7), (5, 5), (5, 12)])
def test_the_shift_equals_the_naive_form(L, N):
    rng = np.random.default_rng(0)
    q_BLHK, r_NHK = (rng.standard_normal(shape, np.float32) for shape in ((2, L, 3, 4), (N, 3, 4)))
    found = jax.jit(lambda q, r: shift_scores(score_distances(q, r)))(q_BLHK, r_NHK)
    visible = np.arange(N) <= N - L + np.arange(L)[:, None]
    expected = np.where(visible, shift_naively(q_BLHK, r_NHK), 0)
    np.testing.assert_allclose(np.where(visible, found, 0), expected, atol=1e-5)
    position_B = np.array([N - 1, N // 2])
    read_step = jax.jit(lambda q, r, at: shift_step_scores(score_distances(q, r), at))
    step = np.array(read_step(q_BLHK[:, :1], r_NHK, position_B))
    for b, position in enumerate(position_B):
        own = shift_naively(q_BLHK[b : b + 1, :1], r_NHK[N - 1 - position :])
        np.testing.assert_allclose(step[b, :, :, : position + 1], own[0], atol=1e-5)


def test_the_shift_never_holds_an_embedding_of_each_pair():
    """Compiled temporaries of one head of width 64 at 256 x 256 pairs."""
    q_BLHK, r_NHK = jnp.ones((1, 256, 1, 64)), jnp.ones((256, 1, 64))
    sizes = [
        jax.jit(form).lower(q_BLHK, r_NHK).compile().memory_analysis().temp_size_in_bytes
        for form in (
            lambda q, r: shift_scores(score_distances(q, r)),
            partial(shift_naively, xp=jnp),
        )
    ]
    pairs = 4 * 256 * 256
    assert sizes[0] <= 3 * pairs and sizes[1] >= 64 * pairs


def test_distances_beyond_the_clamp_are_alike():
    whole, clamped = embed_distances(9, 6), embed_distances(9, 6, clamp_len=4)
    np.testing.assert_array_equal(clamped[:5], np.tile(whole[4], (5, 1)))
    np.testing.assert_array_equal(clamped[4:], whole[4:])
    assert len(np.unique(whole, axis=0)) == 9
    with pytest.raises(ValueError, match="a width of 5 is odd; it must be even"):
        embed_distances(9, 5)


# ---- memory ----------------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("length", [4, 8])
def test_segments_with_memory_equal_one_long_row(make, length):
    """A memory as long as the row holds all segments before."""
    model, params = make(XL)
    whole = run_from(model, params, 0)
    found = run_segments(model, params, TOKENS, length)
    np.testing.assert_allclose(found, whole, atol=1e-5)
    alone = run_from(model, params, length)[:, :length]
    assert np.abs(alone - whole[:, length : 2 * length]).max() > 0.1


def test_a_row_that_is_not_continued_reads_no_memory(make):
    model, params = make(XL)
    _, memory = run_segment(model, params, TOKENS[:, :8])
    is_continued = np.array([True, False, True])
    found, _ = run_segment(model, params, TOKENS[:, 8:], memory, is_continued=is_continued)
    alone = run_from(model, params, 8)[:, :8]
    whole = run_from(model, params, 0)[:, 8:]
    found = np.array(found)
    np.testing.assert_allclose(found[1], alone[1], atol=1e-5)
    np.testing.assert_allclose(found[::2], whole[::2], atol=1e-5)


def test_documents_do_not_read_each_other(make):
    """Each document equals itself alone, wherever the segments cut it."""
    model, params = make(XL)
    starts = [0, 3, 10]  # of the documents; segments begin at 0, 4, 8 and 12
    number_L = np.searchsorted(starts, np.arange(16), side="right")
    segment_ids = np.tile(number_L, (3, 1)).astype(np.int32)
    for start in range(0, 16, 4):  # numbered from 1 in each row
        own = segment_ids[:, start : start + 4]
        own -= own[:, :1] - 1
    found = run_segments(model, params, TOKENS, 4, segment_ids=segment_ids)
    for start, end in zip(starts, [*starts[1:], 16]):
        alone = run_from(model, params, start)[:, : end - start]
        np.testing.assert_allclose(found[:, start:end], alone, atol=1e-5)


def test_no_gradient_flows_into_the_memory(make):
    model, params = make(XL)
    _, memory = run_segment(model, params, TOKENS[:, :8])
    states = memory[SEGMENT_MEMORY]["decoder"]["layers"]["attention"]["states"]

    @jax.jit
    def compute_score(states):
        layers = {"layers": {"attention": {"states": states}}}
        held = {SEGMENT_MEMORY: memory[SEGMENT_MEMORY] | {"decoder": layers}}
        return jnp.square(run_segment(model, params, TOKENS[:, 8:], held)[0]).mean()

    assert not np.any(jax.grad(compute_score)(states))
    assert abs(compute_score(states) - compute_score(2 * states)) > 1e-3


def test_a_memory_of_another_batch_size_is_refused(make):
    model, params = make(XL)
    _, memory = run_segment(model, params, TOKENS[:, :8])
    with pytest.raises(ValueError, match="a segment memory of 3 rows and 16 positions for 2 rows"):
        run_segment(model, params, TOKENS[:2, 8:], memory)
    shorter = build(dataclasses.replace(XL, memory=4))
    with pytest.raises(ValueError, match=r"for 3 rows and model.memory=4: begin with zeros"):
        run_segment(shorter, params, TOKENS[:, 8:], memory)


# ---- options ---------------------------------------------------------------------


def find_reach(model, params, position):
    """Return which positions of the second segment change with a token of the first."""
    changed = TOKENS.copy()
    changed[:, position] = (changed[:, position] + 7) % 50
    one, other = (run_segments(model, params, ids, 8)[0, 8:] for ids in (TOKENS, changed))
    return np.flatnonzero(np.abs(one - other).max(-1) > 1e-6).tolist()


def test_same_length_limits_each_query_to_as_many_positions(make):
    """In one layer, query l of the second segment reads back to l - 5, itself included."""
    model, params = make(dataclasses.replace(XL, depth=1, memory=6, same_length=True))
    assert find_reach(model, params, 7) == [0, 1, 2, 3, 4]
    assert find_reach(model, params, 4) == [0, 1]
    free, params = make(dataclasses.replace(XL, depth=1, memory=6))
    assert find_reach(free, params, 4) == list(range(8))
    assert find_reach(free, params, 1) == []  # the memory is of 6 positions


def test_another_bias_of_the_scores_is_refused():
    layer = RelativeAttention(num_heads=2)
    x, bias = jnp.zeros((1, 4, 8)), jnp.zeros((1, 2, 4, 4))
    relative = RelativePositions(jnp.asarray(embed_distances(4, 8)))
    with pytest.raises(ValueError, match="takes no other bias"):
        jax.eval_shape(partial(layer.init, jax.random.key(0), bias=bias, relative=relative), x)


def test_clamp_len_makes_far_tokens_exchangeable(make):
    """Two tokens beyond the clamp change places, and no state of one layer after them changes."""
    for clamp_len, same in ((3, True), (None, False)):
        model, params = make(dataclasses.replace(XL, depth=1, clamp_len=clamp_len))
        swapped = TOKENS.copy()
        swapped[:, [1, 2]] = TOKENS[:, [2, 1]]
        one, other = (np.array(run_row(model, params, ids))[:, 6:] for ids in (TOKENS, swapped))
        assert bool(np.abs(one - other).max() < 1e-5) == same


def test_untied_biases_are_one_pair_for_each_layer():
    for untie_r, shape in ((True, (2, 3, 5)), (False, (3, 5))):
        model = build(dataclasses.replace(XL, untie_r=untie_r))
        params = jax.eval_shape(lambda m=model: m.init(jax.random.key(0), TOKENS))["params"]
        own = params if not untie_r else params["decoder"]["layers"]["attention"]
        assert own["content_bias"].shape == own["position_bias"].shape == shape


@pytest.mark.held_by(1)
@pytest.mark.parametrize("settings", [{}, {"same_length": True, "memory": 6}], ids=str)
def test_generation_with_the_cache_equals_that_without(make, settings):
    model, params = make(dataclasses.replace(XL, **settings, scan=False))
    lengths, run = np.array([3, 6, 4]), jax.jit(partial(model.apply, {"params": params}))
    written = continue_prompts(model, params, TOKENS[:, :6], lengths, length=5)
    for row, count, new in zip(TOKENS, lengths, np.asarray(written)):
        tokens = row[:count].tolist()
        for token in new:
            padded = np.array([tokens + [0] * (16 - len(tokens))], np.int32)
            assert token == np.argmax(run(padded)[0, len(tokens) - 1])
            tokens.append(token)


# ---- adaptive softmax ------------------------------------------------------------


def draw_params(module, seed=0):
    """Return parameters of an adaptive embedding of 13 ids of width 8, none of them alike."""
    rng = np.random.default_rng(seed)

    def use_all(module):
        return module(jnp.zeros(2, jnp.int32)), module.attend(jnp.zeros((2, 8)))

    init = partial(module.init, method=use_all)
    shapes = jax.eval_shape(init, jax.random.key(0))["params"]
    return jax.tree.map(lambda leaf: rng.standard_normal(leaf.shape, np.float32), shapes)


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("cutoffs", "divisor"), [((), 1), ((4, 9), 1), ((4, 9), 2), ((1, 12), 2)], ids=str
)
def test_the_adaptive_softmax_equals_products_of_probabilities(cutoffs, divisor):
    """By loops in NumPy: p(id) = p(cluster) p(id in the cluster); embeddings are looked up."""
    module, rng = AdaptiveEmbedding(13, 8, cutoffs, divisor), np.random.default_rng(0)
    x, ids = rng.standard_normal((2, 3, 8), np.float32), np.arange(13, dtype=np.int32)
    params = draw_params(module)
    edges, head = [0, *cutoffs, 13], params["lm_head"]
    tables, back = [], []
    for i, (start, end) in enumerate(itertools.pairwise(edges)):
        if divisor == 1:
            tables.append((params["token_embedding"]["embedding"][start:end], np.eye(8)))
            back.append(np.eye(8))
        else:
            own = params[f"cluster_{i}"]
            kernel = own["embedding_projection"]["kernel"]
            tables.append((own["token_embedding"]["embedding"], kernel))
            back.append(kernel.T if i else head["projection"]["kernel"])
    found = np.array(jax.jit(partial(module.apply, method="attend"))({"params": params}, x))
    embedded = np.concatenate([table @ kernel for table, kernel in tables])
    looked_up = jax.jit(module.apply)({"params": params}, ids)
    np.testing.assert_allclose(looked_up, embedded, atol=1e-5)
    for state, log_probs in zip(x.reshape(-1, 8), found.reshape(-1, 13)):
        logits = [
            state @ project @ table.T + head["bias"][start:end]
            for (table, _), project, start, end in zip(tables, back, edges, edges[1:])
        ]
        if cutoffs:
            clusters = head["clusters"]
            logits[0] = np.append(
                logits[0], state @ back[0] @ clusters["kernel"] + clusters["bias"]
            )
        probabilities = [np.exp(own) / np.exp(own).sum() for own in logits]
        expected = list(probabilities[0][: edges[1]])
        for i, own in enumerate(probabilities[1:]):
            expected += list(probabilities[0][edges[1] + i] * own)
        np.testing.assert_allclose(np.exp(log_probs), expected, atol=1e-5)
        assert math.isclose(sum(expected), 1, abs_tol=1e-5)


def test_ids_outside_of_the_table_are_nan_and_gradients_are_finite():
    module = AdaptiveEmbedding(13, 8, (4, 9), 2)
    params = draw_params(module)
    embedded = np.array(jax.jit(module.apply)({"params": params}, np.array([3, 12, 13])))
    assert np.isfinite(embedded[:2]).all() and np.isnan(embedded[2]).all()
    ids = np.arange(13)
    grads = jax.jit(jax.grad(lambda p: module.apply({"params": p}, ids).sum()))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize(
    ("make_clusters", "message"),
    [
        (lambda: Clusters((30, 12)), "they must ascend"),
        (lambda: Clusters(()), "there must be at least one"),
        (lambda: Clusters((0, 12)), "all must be at least 1"),
        (lambda: Clusters((12, 50)), "cutoffs=12,50 for 50 ids: they must ascend between 0 and 50"),
        (lambda: Clusters((12, 30), 5), "divisor=5: a width of 24 does not divide by 5 for each"),
    ],
)
def test_clusters_that_do_not_fit_are_refused(make_clusters, message):
    with pytest.raises(ValueError, match=message):
        count_parameters(dataclasses.replace(XL, clusters=make_clusters()))


def test_a_clamp_of_nothing_is_refused():
    with pytest.raises(ValueError, match="clamp_len is 0; it must be at least 1, or none"):
        dataclasses.replace(XL, clamp_len=0)
