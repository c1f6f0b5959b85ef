"""Sparse patterns are the paper's, and attention in blocks is attention under their mask."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.block_sparse import SparsePattern, attend_in_blocks
from models.layers.cache import DecodingStep
from models.layers.masks import Mask, make_causal_mask
from models.layers.ops import attend

PARTS = ("first", "second", "both")
B, H, K = 2, 3, 4
# S = 4; two heads of three read the last two positions of a block, the other the two before.
PATTERNS = [
    SparsePattern(kind, 4, 2, subblocks, part)
    for kind, subblocks in (("strided", 1), ("fixed", 1), ("fixed", 2))
    for part in PARTS
] + [SparsePattern("banded", 4, part="first")]


def name_pattern(pattern):
    return f"{pattern.kind} {pattern.part} {pattern.subblocks}"


for_patterns = pytest.mark.parametrize("pattern", PATTERNS, ids=name_pattern)


def list_positions(pattern, i, head):
    """Return the set of j that query i attends to, as sections 4.2 and 4.3 write it."""
    S, c = pattern.stride, pattern.summary
    if pattern.kind == "banded":
        return set(range(max(0, i - S + 1), i + 1))
    if pattern.kind == "strided":
        first = set(range(max(0, i - S), i + 1))
        second = {j for j in range(i + 1) if (i - j) % S == 0}
    else:
        first = {j for j in range(i + 1) if j // S == i // S}
        t = S - c * (1 + head % pattern.subblocks)
        second = {j for j in range(i + 1) if j % S in range(t, t + c)} | {i}
    return {"first": first, "second": second, "both": first | second}[pattern.part]


def make_square(pattern, L, head=0):
    """Return the mask of a head, bool [L, L], in NumPy."""
    return np.asarray(pattern.is_visible(np.arange(L)[:, None], np.arange(L), head))


@pytest.mark.fast
@for_patterns
def test_a_pattern_is_that_of_the_paper(pattern):
    mask = make_causal_mask().replace(pattern=pattern)
    dense = np.broadcast_to(np.asarray(mask.make_dense(18, 18, H)), (1, H, 18, 18))[0]
    for head, i in itertools.product(range(H), range(18)):
        found = set(np.flatnonzero(dense[head, i]).tolist())
        assert found == list_positions(pattern, i, head), (head, i)
    assert pattern.count_visible_keys(18).tolist() == dense[0].sum(-1).tolist()
    assert mask.count_visible_pairs(18, 18) == dense[0].sum()


@pytest.mark.fast
@for_patterns
def test_a_step_reads_its_row_of_the_mask(pattern):
    """Rows of a batch are at different positions."""
    position_B = np.array([2, 13])
    step = DecodingStep(jnp.asarray(position_B), 18)
    mask = make_causal_mask(step=step).replace(pattern=pattern)
    found = np.broadcast_to(np.asarray(mask.make_dense(1, 18, H)), (2, H, 1, 18))
    for head in range(H):
        expected = make_square(pattern, 18, head)[position_B]
        np.testing.assert_array_equal(found[:, head, 0], expected)


@pytest.mark.fast
@pytest.mark.parametrize("kind", ["strided", "fixed"])
@pytest.mark.parametrize("stride", [1, 4, 8])
def test_two_layers_connect_all_positions(kind, stride):
    """A layer of the first pattern, then one of the second; or two merged layers."""
    squares = {
        part: make_square(SparsePattern(kind, stride, min(stride, 2), part=part), 40)
        for part in PARTS
    }
    for second, first in ((squares["second"], squares["first"]), (squares["both"],) * 2):
        np.testing.assert_array_equal(second @ first, np.tri(40, dtype=bool))
        # One layer does not.
        assert stride == 1 or first.sum() < 40 * 41 / 2


def draw_vectors(L):
    return np.random.default_rng(L).standard_normal((4, B, L, H, K), np.float32)


def run_attention(function, q_BLHK, k_BLHK, v_BLHK, weights_BLHK):
    """Return the output and the gradients of q, k and v."""
    o_BLHK, pull = jax.vjp(function, q_BLHK, k_BLHK, v_BLHK)
    return o_BLHK, *pull(weights_BLHK)


@pytest.mark.held_by(4)
@for_patterns
@pytest.mark.parametrize(("L", "packed"), [(3, False), (16, False), (18, True)])
def test_blocks_compute_what_the_mask_does(pattern, L, packed):
    """Outputs and gradients, of rows shorter than a block and of no multiple of it, too."""
    segments = jnp.asarray(np.sort(np.random.default_rng(L).integers(0, 3, (B, L)), axis=1))

    @jax.jit
    def run_both(segments, *vectors):
        mask = make_causal_mask(segment_ids_BL=segments if packed else None)
        mask = mask.replace(pattern=pattern)
        dense = mask.make_dense(L, L, H)
        return tuple(
            run_attention(lambda *qkv, read=read: attend(*qkv, mask=read), *vectors)
            for read in (mask, dense)
        )

    found, expected = run_both(segments, *draw_vectors(L))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.held_by(2)
@for_patterns
def test_segments_do_not_see_each_other(pattern):
    """Exactly: no bit of the second text depends on the first, and the mask hides padding."""
    q, k, v, _ = draw_vectors(18)
    segments = jnp.asarray(np.broadcast_to(1 + (np.arange(18) >= 7), (B, 18)).astype(np.int32))
    valid = jnp.asarray(np.arange(18) < np.array([[18], [15]]))
    mask = make_causal_mask(valid, segments).replace(pattern=pattern)
    run = jax.jit(lambda k, v: attend(q, k, v, mask=mask))
    first, last = np.zeros((B, 18, 1, 1), np.float32), np.zeros((B, 18, 1, 1), np.float32)
    first[:, :7], last[1, 15:] = 1, 1
    found, expected = (np.array(run(k + one, v + one)) for one in (first, last))
    np.testing.assert_array_equal(found[0, 7:], expected[0, 7:])
    np.testing.assert_array_equal(found[1, 7:15], expected[1, 7:15])
    assert (np.abs(found - expected)[:, :7].max((2, 3)) > 1e-3).all()


@pytest.mark.parametrize("kind", ["strided", "fixed"])
def test_memory_grows_with_the_root_of_the_length(kind):
    """Four times the length with twice the stride: 8 times the bytes, and not 16 as of a square."""

    def measure_bytes(L, stride):
        pattern = SparsePattern(kind, stride, 4)
        x = jax.ShapeDtypeStruct((1, L, 2, 8), jnp.float32)
        run = jax.jit(
            lambda *x: run_attention(lambda *qkv: attend_in_blocks(*qkv, pattern=pattern), *x)
        )
        analysis: Any = run.lower(x, x, x, x).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    short, long = measure_bytes(1_024, 32), measure_bytes(4_096, 64)
    assert 4 < long / short < 9
    assert long < 4_096**2 * 2 * 4  # the scores of all pairs


@pytest.mark.parametrize(("L", "window", "blocks"), [(18, 5, True), (18, 9, False)])
def test_a_causal_window_is_computed_in_blocks_where_they_save_pairs(L, window, blocks):
    q, k, v, _ = draw_vectors(L)
    segments = jnp.asarray(np.broadcast_to(np.arange(L) >= 7, (B, L)).astype(np.int32))
    mask = make_causal_mask(segment_ids_BL=segments, window=window)
    banded = SparsePattern("banded", window, part="first")
    np.testing.assert_array_equal(
        make_causal_mask(window=window).make_dense(L, L)[0, 0], make_square(banded, L)
    )
    assert mask.find_block_pattern(L, L) == (banded if blocks else None)
    assert mask.count_scored_pairs(L, L) == (20 * 10 if blocks else L * L)
    run = jax.jit(lambda q, k, v, mask: attend(q, k, v, mask=mask))
    found = run(q, k, v, mask)
    np.testing.assert_allclose(found, run(q, k, v, mask.make_dense(L, L)), atol=2e-6)


@pytest.mark.parametrize("mask", [make_causal_mask(window=5), Mask(window=8)], ids=str)
def test_blocks_cap_scores_as_all_pairs_do(mask):
    q, k, v, _ = draw_vectors(18)
    assert mask.find_block_pattern(18, 18)
    run = jax.jit(lambda mask, cap: attend(4 * q, k, v, mask=mask, soft_cap=cap), static_argnums=1)
    found = run(mask, 0.8)
    np.testing.assert_allclose(found, run(mask.make_dense(18, 18), 0.8), atol=2e-6)
    assert np.abs(found - run(mask, None)).max() > 0.1


@pytest.mark.parametrize(
    ("L", "window", "blocks"), [(18, 8, True), (17, 11, True), (15, 10, False)]
)
def test_a_window_on_both_sides_is_computed_in_blocks_where_they_save_pairs(L, window, blocks):
    """Outputs and gradients of packed and padded rows are those of all pairs under the mask."""
    half = window // 2
    segments = jnp.asarray(np.broadcast_to(np.arange(L) >= 7, (B, L)).astype(np.int32))
    valid = jnp.asarray(np.arange(L) < np.array([[L], [L - 3]]))
    mask = Mask(valid, (segments, segments), window=window)
    local = SparsePattern("local", half, part="first")
    assert mask.find_block_pattern(L, L) == (local if blocks else None)
    num_blocks = -(-L // half)
    assert mask.count_scored_pairs(L, L) == (num_blocks * 3 * half**2 if blocks else L * L)
    square = np.abs(np.arange(L)[:, None] - np.arange(L)) <= half
    np.testing.assert_array_equal(make_square(local, L), square)
    assert local.count_visible_keys(L).tolist() == square.sum(-1).tolist()
    *vectors, weights = draw_vectors(L)
    weights = weights * np.asarray(valid)[..., None, None]  # No loss reads the padding.

    @jax.jit
    def run_both(*vectors):
        dense = mask.make_dense(L, L)
        return tuple(
            run_attention(lambda *qkv, read=read: attend(*qkv, mask=read), *vectors)
            for read in (mask, dense)
        )

    found, expected = run_both(*vectors, weights)
    np.testing.assert_allclose(
        np.where(valid[..., None, None], found[0], 0),
        np.where(valid[..., None, None], expected[0], 0),
        atol=2e-6,
    )
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(kind="banded", stride=4), "'banded', 'both': the pattern is strided or fixed"),
        (dict(kind="fixed", stride=0), "stride=0, summary=1, subblocks=1: each must be at least 1"),
        (
            dict(kind="fixed", stride=8, summary=3, subblocks=3),
            "3 subblocks of 3 positions do not fit into a block of 8: lower model.subblocks",
        ),
    ],
)
def test_a_pattern_that_cannot_be_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SparsePattern(**settings)


@pytest.mark.fast
def test_a_pattern_is_causal_and_alone():
    pattern = SparsePattern("fixed", 4)
    for settings in ({}, {"causal": True, "window": 3}, {"causal": True, "offset": 2}):
        with pytest.raises(ValueError, match="it needs causal=True, and neither of the others"):
            Mask(pattern=pattern, **settings)
    with pytest.raises(ValueError, match="a local pattern: give the mask a window instead"):
        Mask(pattern=SparsePattern("local", 4, part="first"), causal=True)
