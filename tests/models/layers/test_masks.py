"""A mask equals its definition, pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.cache import DecodingStep
from models.layers.masks import Mask, make_causal_mask, make_padding_mask
from models.layers.ops import attend

pytestmark = pytest.mark.fast

VALID = np.arange(6) < np.array([[6], [4], [0]])
SEGMENTS = np.array([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]], np.int32)


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (make_padding_mask(jnp.asarray(VALID)), lambda b, l, m: VALID[b, m]),
        (make_causal_mask(), lambda b, l, m: m <= l),
        (make_causal_mask(window=2), lambda b, l, m: l - 2 < m <= l),
        (Mask(window=1), lambda b, l, m: l == m),
        (Mask(window=4), lambda b, l, m: l - 2 <= m <= l + 2),
        (Mask(window=5), lambda b, l, m: l - 2 <= m <= l + 2),
        (make_padding_mask(jnp.asarray(VALID), jnp.asarray(SEGMENTS)).replace(window=2),
         lambda b, l, m: abs(l - m) < 2 and VALID[b, m] and SEGMENTS[b, l] == SEGMENTS[b, m]),
        (make_causal_mask(jnp.asarray(VALID), jnp.asarray(SEGMENTS)),
         lambda b, l, m: m <= l and VALID[b, m] and SEGMENTS[b, l] == SEGMENTS[b, m]),
        (Mask(segment_ids=(jnp.asarray(SEGMENTS), jnp.asarray(SEGMENTS))),
         lambda b, l, m: SEGMENTS[b, l] == SEGMENTS[b, m]),
    ],
    ids=(
        *("padding", "causal", "window", "window both ways: 1", "window both ways: 4"),
        *("window both ways: 5", "window both ways, packed and padded"),
        *("causal, packed and padded", "segments"),
    ),
)  # fmt: skip
def test_each_pair_is_allowed_for_its_reasons(mask, allowed):
    dense = np.broadcast_to(mask.make_dense(6, 6), (3, 1, 6, 6))
    expected = [[[[bool(allowed(b, l, m)) for m in range(6)] for l in range(6)]] for b in range(3)]
    assert dense.tolist() == expected


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (Mask(causal=True, offset=2), lambda l, m: m <= l + 2),
        (Mask(causal=True, offset=2, window=3), lambda l, m: l - 1 < m <= l + 2),
        (Mask(offset=2, window=2), lambda l, m: abs(l + 2 - m) <= 1),
    ],
    ids=["causal", "causal window", "window both ways"],
)
def test_queries_stand_behind_a_memory(mask, allowed):
    dense = np.asarray(mask.make_dense(4, 6))[0, 0]
    expected = [[bool(allowed(l, m)) for m in range(6)] for l in range(4)]
    assert dense.tolist() == expected
    assert mask.count_visible_pairs(4, 6) == dense.sum()


def test_queries_see_lower_ranks_and_their_own_position():
    queries, keys = np.array([[1, 0, 3, 1], [0, 5, 1, 2]]), np.array([[-1, 9, 0, 1, 2, 0]] * 2)
    mask = Mask(jnp.arange(6) < jnp.asarray([[6], [4]]), offset=1)
    mask = mask.replace(ranks=(jnp.asarray(queries), jnp.asarray(keys)))
    found = np.asarray(mask.make_dense(4, 6))[:, 0]
    for b, l, m in np.ndindex(2, 4, 6):
        assert found[b, l, m] == ((keys[b, m] < queries[b, l] or m == l + 1) and m < (6, 4)[b])
    assert mask.count_visible_pairs(4, 6) == 24 and mask.local_window_size == (None, None)
    part = mask.take_queries(1, 3).make_dense(2, 6)
    np.testing.assert_array_equal(part[:, 0], found[:, 1:3])


def test_ranks_take_the_place_of_the_order_of_positions():
    ranks = jnp.zeros((1, 6), jnp.int32), jnp.zeros((1, 6), jnp.int32)
    step = DecodingStep(jnp.zeros(1, jnp.int32), 6)
    for settings in ({"causal": True}, {"window": 3}, {"step": step}):
        with pytest.raises(ValueError, match="the order of the ranks replaces"):
            Mask(ranks=ranks, **settings)


def test_an_offset_that_cannot_be_is_refused():
    step = DecodingStep(jnp.zeros(1, jnp.int32), 6)
    for settings in ({"offset": -1}, {"offset": 2, "step": step}):
        with pytest.raises(ValueError, match="keys before the first query: it must be at least 0"):
            Mask(causal=True, **settings)


def test_no_reason_is_no_mask():
    assert Mask().make_dense(3, 4) is None


def test_reasons_pass_through_jit():
    @jax.jit
    def make_dense(mask):
        return mask.make_dense(6, 6)

    mask = make_causal_mask(jnp.asarray(VALID), window=3)
    np.testing.assert_array_equal(make_dense(mask), mask.make_dense(6, 6))


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_has_a_position(causal):
    with pytest.raises(ValueError, match="a window of 0 positions: it must be at least 1"):
        Mask(window=0, causal=causal)


def test_a_window_both_ways_does_not_decode():
    step = DecodingStep(jnp.zeros(3, jnp.int32), num_slots=6)
    with pytest.raises(
        ValueError, match="a window of 4 positions on both sides in a decoding step"
    ):
        Mask(window=4, step=step)
    with pytest.raises(ValueError, match=r"Only a causal mask can decode \(causal=True\)"):
        make_causal_mask(window=4, step=step).replace(causal=False)


def test_a_step_reads_all_slots_of_its_cache():
    """Without its cache a step would attend to itself alone."""
    mask = make_causal_mask(step=DecodingStep(jnp.array([0, 2]), num_slots=6))
    assert mask.make_dense(1, 6).sum(-1).ravel().tolist() == [1, 3]
    with pytest.raises(ValueError, match="a decoding step reads 6 slots of a cache, not 1 keys"):
        mask.make_dense(1, 1)


@pytest.mark.parametrize(
    ("mask", "reach"),
    [
        (Mask(), (None, None)),
        (make_causal_mask(), (None, 0)),
        (make_causal_mask(window=4), (3, 0)),
        (Mask(window=4), (2, 2)),
    ],
)
def test_reach_bounds_the_pairs(mask, reach):
    assert mask.local_window_size == reach
    before, after = (9 if side is None else side for side in reach)
    pairs = [[l - before <= m <= l + after for m in range(9)] for l in range(9)]
    assert np.broadcast_to(
        True if reach == (None, None) else mask.make_dense(9, 9), (1, 1, 9, 9)
    ).tolist() == [[pairs]]


def attend_by_formula(q_BLHK, k_BMHK, v_BMHK, allowed_BLM, do_BLHK):
    """Return attention's output and gradients in float64, by the formulas of the softmax."""
    scale = q_BLHK.shape[-1] ** -0.5
    scores_BHLM = np.einsum("blhk,bmhk->bhlm", q_BLHK, k_BMHK) * scale
    weights_BHLM = np.exp(scores_BHLM - scores_BHLM.max(-1, keepdims=True)) * allowed_BLM[:, None]
    weights_BHLM /= weights_BHLM.sum(-1, keepdims=True)
    dweights_BHLM = np.einsum("blhk,bmhk->bhlm", do_BLHK, v_BMHK)
    dscores_BHLM = weights_BHLM * (
        dweights_BHLM - (weights_BHLM * dweights_BHLM).sum(-1, keepdims=True)
    )
    return (
        np.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK),
        np.einsum("bhlm,bmhk->blhk", dscores_BHLM, k_BMHK) * scale,
        np.einsum("bhlm,blhk->bmhk", dscores_BHLM, q_BLHK) * scale,
        np.einsum("bhlm,blhk->bmhk", weights_BHLM, do_BLHK),
    )


@pytest.mark.parametrize("window", [1, 2, 3, 4, 100])
def test_attention_in_a_window_both_ways_is_its_formula(window):
    """Packed and padded: every position attends to itself at least, or it is padding and its output
    does not count.
    """
    rng = np.random.default_rng(window)
    q, k, v, do = rng.standard_normal((4, 2, 6, 2, 4))
    valid, segments = VALID[:2], SEGMENTS[:2]
    do *= valid[..., None, None]
    far = np.abs(np.subtract.outer(np.arange(6), np.arange(6))) > window // 2
    allowed = ~far & valid[:, None] & (segments[:, :, None] == segments[:, None])
    allowed |= np.eye(6, dtype=bool) & ~valid[:, None]  # padding: anything finite
    mask = make_padding_mask(jnp.asarray(valid), jnp.asarray(segments)).replace(window=window)
    q, k, v, do = (x.astype(np.float32) for x in (q, k, v, do))
    o, pull = jax.vjp(lambda q, k, v: attend(q, k, v, mask=mask), q, k, v)
    expected, *gradients = attend_by_formula(
        *(x.astype(np.float64) for x in (q, k, v)), allowed, do
    )
    np.testing.assert_allclose(o[valid], expected[valid], atol=1e-5)
    for gradient, formula in zip(pull(jnp.asarray(do)), gradients, strict=True):
        np.testing.assert_allclose(gradient, formula, atol=1e-5)
