"""XLNet as in its paper: what `transformers` computed, sizes, orders, streams, memory."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import build
from models.config.xlnet import XLNetConfig
from models.layers.cache import SEGMENT_MEMORY
from models.layers.relative.distance_bias import score_distances, shift_scores
from models.layers.relative.relative_attention import embed_distances
from models.xlnet import make_order_mask
from pretrain.convert.pretrained import CONVERTERS

TINY = XLNetConfig(vocab=50, width=24, depth=2, num_heads=3, mlp=40, dropout=0.0)
TOKENS = np.random.default_rng(0).integers(0, 50, (2, 9)).astype(np.int32)
VALID = np.ones(TOKENS.shape, bool)


def load_golden(golden, scan=True):
    """Return (golden, configuration, module, parameters)."""
    found, convert = golden("xlnet"), CONVERTERS["xlnet"]
    config = dataclasses.replace(convert.from_hf_config(found.config), scan=scan)
    model, ids = build(config), found.inputs["first.token_ids"]
    fresh = jax.tree.map(
        lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype),
        jax.eval_shape(lambda: model.init(jax.random.key(0), ids, ids > 0))["params"],
    )
    params, report = convert.from_hf(config, found.weights, fresh)
    assert report.missing == report.unused == ()
    return found, config, model, params


# ---- transformers ----------------------------------------------------------------


@pytest.mark.held_by(1)
@pytest.mark.parametrize("scan", [True, False])
def test_both_streams_equal_those_of_transformers(golden, scan):
    """With an order, predicted positions, texts and, in the second segment, a memory.

    In float64, so that only transformers rounds, whatever the processor.
    """
    found, config, model, params = load_golden(golden, scan)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    shared = {key: found.inputs[key] for key in ("attention_mask", "token_type_ids")}

    @partial(jax.jit, static_argnames="predicts")
    def run(memory, inputs, predicts):
        more = inputs if predicts else {"token_ids": inputs["token_ids"]}
        variables = {"params": exact, **memory}
        return model.apply(variables, **shared, **more, mutable=[SEGMENT_MEMORY])

    memory = {}
    # Positions are int64 then, and meet int32.
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        for segment in ("first", "second"):
            inputs = {
                key: found.inputs[f"{segment}.{key}"]
                for key in ("token_ids", "masked_positions", "permutation_ranks")
            }
            valid = shared["attention_mask"]
            (plain, _), _ = run(memory, inputs, False)
            expected = found.outputs[f"{segment}.plain"]
            np.testing.assert_allclose(plain[valid], expected[valid], rtol=1e-5, atol=1e-5)
            (predicted, _), memory = run(memory, inputs, True)
            np.testing.assert_allclose(
                predicted, found.outputs[f"{segment}.predicted"], rtol=1e-5, atol=1e-5
            )
    exported = CONVERTERS["xlnet"].to_hf(config, params)
    assert exported.keys() >= found.weights.keys()
    for key, tensor in found.weights.items():
        np.testing.assert_allclose(exported[key], tensor, rtol=1e-6, err_msg=key)


# ---- sizes -----------------------------------------------------------------------


# ---- relative positions ----------------------------------------------------------


@pytest.mark.parametrize(("L", "N"), [(1, 1), (4, 4), (4, 9)])
def test_the_shift_in_both_directions_equals_the_naive_form(L, N):
    rng = np.random.default_rng(0)
    q_BLHK = rng.standard_normal((2, L, 3, 4), np.float32)
    r_RHK = rng.standard_normal((N + L - 1, 3, 4), np.float32)
    distance_LN = N - L + np.arange(L)[:, None] - np.arange(N)
    expected = np.einsum("blhk,lnhk->bhln", q_BLHK, r_RHK[N - 1 - distance_LN])
    found = jax.jit(lambda q, r: shift_scores(score_distances(q, r))[..., :N])(q_BLHK, r_RHK)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_distances_of_both_directions():
    both = embed_distances(5, 6, num_after=4)
    assert len(both) == 9
    np.testing.assert_array_equal(both[:5], embed_distances(5, 6))
    np.testing.assert_allclose(both[4:, :3], -both[4::-1, :3], atol=1e-7)  # sines are odd
    clamped = embed_distances(5, 6, clamp_len=2, num_after=4)
    np.testing.assert_array_equal(clamped, both[[2, 2, 2, 3, 4, 5, 6, 6, 6]])


# ---- orders ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(make):
    return make(TINY)


@pytest.fixture(scope="module")
def run(tiny):
    """Return run(**inputs): the states of one compiled program for each set of inputs."""
    model, params = tiny
    apply = jax.jit(partial(model.apply, {"params": params}, method="compute_states"))
    return lambda ids=TOKENS, **inputs: np.asarray(apply(ids, VALID, **inputs)[0])


def find_dependencies(states_of, positions):
    """Return whether each state depends on each token: bool [states, L].

    states_of: ids [B, L] -> states [B, S, D].
    """
    before = states_of(TOKENS)[0]
    depends = []
    for position in positions:
        ids = TOKENS.copy()
        ids[:, position] = (ids[:, position] + 1) % 50
        depends.append(np.abs(states_of(ids)[0] - before).max(axis=-1) > 1e-6)
    return np.stack(depends, axis=1)


def test_a_predicted_token_sees_the_context_and_those_before_it_in_the_order(run):
    """Which tokens a prediction depends on, over two layers, is found by changing them one by one."""
    ranks_L = np.array([0, 3, 0, 1, 0, 0, 4, 2, 0], np.int32)
    positions_P = np.array([1, 3, 6, 7], np.int32)
    inputs = {
        "permutation_ranks": np.broadcast_to(ranks_L, TOKENS.shape),
        "masked_positions": np.broadcast_to(positions_P, (2, 4)),
    }
    found = find_dependencies(lambda ids: run(ids, **inputs), range(9))
    expected = ranks_L[None] < ranks_L[positions_P][:, None]
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 99),
    has_ranks=st.booleans(),
    P=st.one_of(st.none(), st.integers(1, 9)),
    memory=st.one_of(st.none(), st.integers(1, 5)),
)
def test_ranks_show_the_pairs_of_both_streams(seed, has_ranks, P, memory):
    """By section 2.3: a content query sees the context, what is before it and itself; a query of the
    other stream sees what is before it. Both see the readable memory, and no padding.
    """
    rng, L = np.random.default_rng(seed), 9
    is_token = np.arange(L) < rng.integers(1, L + 1, (2, 1))
    ranks = rng.integers(0, 4, (2, L)) if has_ranks else np.zeros((2, L), int)
    positions = None if P is None else rng.integers(0, L, (2, P))
    readable = None if memory is None else rng.random((2, memory)) < 0.5
    arrays = (ranks.copy() if has_ranks else None), positions
    if positions is not None and not has_ranks:
        np.put_along_axis(ranks, positions, 1, axis=1)
    expected = (ranks[:, None, :] < ranks[:, :, None]) | (ranks[:, None, :] == 0)
    expected = (expected & is_token[:, None]) | np.eye(L, dtype=bool)
    if positions is not None:
        own = np.take_along_axis(ranks, positions, axis=1)
        query = (ranks[:, None, :] < own[:, :, None]) & is_token[:, None]
        expected = np.concatenate([expected, query], axis=1)
    if readable is not None:
        shape = 2, expected.shape[1], memory
        memory_pairs = np.broadcast_to(readable[:, None], shape)
        expected = np.concatenate([memory_pairs, expected], axis=2)
    given_arrays = [None if x is None else np.asarray(x, np.int32) for x in arrays]
    found = np.asarray(
        jax.jit(lambda *given: make_order_mask(*given).make_dense(*expected.shape[1:]))(
            is_token, *given_arrays, readable
        )
    )
    np.testing.assert_array_equal(found[:, 0], expected)


def test_the_probability_of_a_row_is_that_of_every_order(run, tiny):
    """A state depends on the set of the tokens before it, and not on their order (equation 4)."""
    positions = np.array([[8], [8]], np.int32)
    orders = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 1, 2, 8, 7, 6, 5, 4, 9]], np.int32)
    ids = np.broadcast_to(TOKENS[:1], TOKENS.shape)
    one_layer, params = tiny[0].copy(config=dataclasses.replace(TINY, depth=1)), tiny[1]
    params = params | {"encoder": jax.tree.map(lambda leaf: np.array(leaf)[:1], params["encoder"])}
    first, second = np.array(
        jax.jit(partial(one_layer.apply, method="compute_states"))(
            {"params": params}, ids, VALID, permutation_ranks=orders, masked_positions=positions
        )[0]
    )
    np.testing.assert_allclose(first, second, atol=1e-6)
    deep = run(ids, permutation_ranks=orders, masked_positions=positions)
    assert np.abs(deep[0] - deep[1]).max() > 1e-4  # deeper layers see through others


def test_without_ranks_masked_tokens_see_the_others_and_not_each_other(run):
    positions = np.array([[2, 5], [2, 5]], np.int32)
    found = find_dependencies(lambda ids: run(ids, masked_positions=positions), range(9))
    np.testing.assert_array_equal(found, np.broadcast_to(~np.isin(np.arange(9), [2, 5]), (2, 9)))
    ranks = np.broadcast_to(np.isin(np.arange(9), [2, 5]).astype(np.int32), TOKENS.shape)
    np.testing.assert_allclose(
        run(masked_positions=positions),
        run(masked_positions=positions, permutation_ranks=ranks),
        atol=1e-6,
    )


def test_an_order_from_left_to_right_is_a_language_model(run):
    """The content stream is then a causal model's: Transformer-XL's case (section 2.6)."""
    ranks = np.broadcast_to(np.arange(1, 10, dtype=np.int32), TOKENS.shape)
    found = find_dependencies(lambda ids: run(ids, permutation_ranks=ranks), range(9))
    np.testing.assert_array_equal(found, np.tri(9, dtype=bool))


def test_texts_are_relative(run):
    """Only whether two tokens are of the same text counts, not of which."""
    types = (np.arange(9) >= 4).astype(np.int32)[None].repeat(2, axis=0)
    np.testing.assert_allclose(run(token_type_ids=types), run(token_type_ids=1 - types), atol=1e-6)
    assert np.abs(run(token_type_ids=types) - run()).max() > 1e-3
    np.testing.assert_allclose(run(token_type_ids=np.zeros_like(types)), run(), atol=1e-5)


# ---- memory ----------------------------------------------------------------------


def test_a_row_that_does_not_continue_reads_no_memory(make):
    """And one that does reads the states of the row before."""
    model, params = make(dataclasses.replace(TINY, memory=6))
    apply = jax.jit(
        partial(model.apply, mutable=[SEGMENT_MEMORY], method="compute_states"),
    )
    (alone, _), memory = apply({"params": params}, TOKENS, VALID)
    assert memory[SEGMENT_MEMORY]["is_readable"].all()
    variables = {"params": params, **memory}
    (mixed, _), _ = apply(variables, TOKENS, VALID, is_continued=np.array([True, False]))
    mixed, alone = np.array(mixed), np.array(alone)
    np.testing.assert_allclose(mixed[1], alone[1], atol=1e-5)
    assert np.abs(mixed[0] - alone[0]).max() > 1e-3


def test_a_memory_of_another_batch_size_is_refused(make):
    model, params = make(dataclasses.replace(TINY, memory=6))
    trace = partial(jax.eval_shape, partial(model.apply, mutable=[SEGMENT_MEMORY]))
    _, memory = trace({"params": params}, TOKENS, VALID)
    with pytest.raises(ValueError, match=r"a segment memory of 2 rows and 6 positions for 1 rows"):
        trace({"params": params, **memory}, TOKENS[:1], VALID[:1])


def test_packed_rows_are_refused(tiny):
    model, params = tiny
    with pytest.raises(ValueError, match="reads one text, or a pair of texts, a row"):
        model.apply({"params": params}, TOKENS, VALID, segment_ids=TOKENS, method="encode")
