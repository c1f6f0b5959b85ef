"""Attention in chunks equals its definition, pair by pair; hashes are section 2's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.cache import DecodingStep
from models.layers.long_rows.hashed_attention import (
    choose_buckets,
    draw_rotations,
    hash_vectors,
    normalize_keys,
)
from models.layers.long_rows.key_chunks import KeyChunks, attend_in_chunks
from models.layers.masks import make_causal_mask
from models.layers.ops import attend

pytestmark = pytest.mark.fast

B, H, L, K, R = 2, 2, 10, 4, 3
RNG = np.random.default_rng(0)
Q, KEYS, V = (RNG.standard_normal((B, L, H, K), np.float32) for _ in range(3))
BUCKETS = RNG.integers(0, 3, (B, H, R, L)).astype(np.int32)
SEGMENTS = np.array([[1, 1, 1, 1, 2, 2, 2, 2, 2, 3], [5, 5, 5, 2, 2, 2, 2, 2, 2, 2]], np.int32)


def attend_by_definition(b, h, chunks, size, multiple, segments, avoids_self):
    """Return the output [L, K] of one head of one row, by loops over rounds and pairs, and where a
    query sees only itself in all rounds, [L].
    """
    padded = -(-L // multiple) * multiple
    rounds = [[0] * L] if chunks is None else chunks[b, h].tolist()
    orders = [
        sorted(range(L), key=lambda i: (segments[b][i], buckets[i], i)) if chunks is not None
        else list(range(L))
        for buckets in rounds
    ]  # fmt: skip
    # all rounds in a circle; None for padding
    circle = [place for order in orders for place in order + [None] * (padded - L)]
    num_chunks = len(circle) // size
    outputs, totals = np.zeros((len(rounds), L, K)), np.zeros((len(rounds), L))
    for r, order in enumerate(orders):
        for i in range(L):
            chunk = (r * padded + order.index(i)) // size
            near = [
                circle[c % num_chunks * size + place]
                for c in (chunk - 1, chunk)
                for place in range(size)
            ]
            seen = [
                j for j in near if j is not None and j <= i and segments[b][j] == segments[b][i]
            ]
            others = [j for j in seen if j != i]
            seen = others if avoids_self and others else seen
            scores = np.array([Q[b, i, h] @ KEYS[b, j, h] / math.sqrt(K) for j in seen])
            scores = np.full(len(seen), -1e5) if avoids_self and not others else scores
            totals[r, i] = np.log(np.exp(scores - scores.max()).sum()) + scores.max()
            outputs[r, i] = np.exp(scores - totals[r, i]) @ np.array([V[b, j, h] for j in seen])
    shares = np.exp(totals - totals.max(0))
    return np.einsum("rl,rlk->lk", shares / shares.sum(0), outputs), totals.max(0) < -1e4


@pytest.mark.held_by(3)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("size", "multiple"), [(2, 2), (4, 4), (3, 6)])
@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.slow
def test_chunks_are_their_definition(hashed, size, multiple, packed):
    """For rows of whole chunks and with padding, of one text and of several."""
    buckets = BUCKETS if hashed else None
    chunks = KeyChunks(size, multiple, buckets, avoids_self=hashed)
    ids = (SEGMENTS, SEGMENTS) if packed else None
    found = jax.jit(attend_in_chunks)(Q, KEYS, V, chunks=chunks, segment_ids=ids)
    segments = SEGMENTS if packed else np.zeros((B, L), int)
    for b in range(B):
        for h in range(H):
            expected, alone = attend_by_definition(b, h, buckets, size, multiple, segments, hashed)
            np.testing.assert_allclose(found[b, ~alone, h], expected[~alone], atol=1e-5)
            # The shares of such rounds are rounded: see `weigh_rounds`.
            np.testing.assert_allclose(found[b, alone, h], expected[alone], rtol=5e-3)


def test_local_chunks_are_a_mask_of_pairs():
    """Also in a decoding step, which reads a cache of all positions."""
    i = np.arange(L)
    near = (i[:, None] >= i) & (i // 4 >= i[:, None] // 4 - 1)
    mask = make_causal_mask(segment_ids_BL=jnp.asarray(SEGMENTS)).replace(chunks=KeyChunks(4, 4))
    pairs = near & (SEGMENTS[:, None, :, None] == SEGMENTS[:, None, None])
    run = jax.jit(attend)
    found, expected = run(Q, KEYS, V, mask=mask), run(Q, KEYS, V, mask=pairs)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    step = DecodingStep(jnp.asarray([6, 9]), L)
    stepwise = make_causal_mask(step=step).replace(chunks=KeyChunks(4, 4))
    np.testing.assert_array_equal(stepwise.make_dense(1, L)[:, 0, 0], near[[6, 9]])


def test_nothing_comes_from_later_tokens_or_other_texts():
    """Exactly: a change of such a token, in the same bucket, changes no bit."""
    chunks = KeyChunks(2, 2, BUCKETS, avoids_self=True)

    @jax.jit
    def run(x):
        return attend_in_chunks(x, x, x, chunks=chunks, segment_ids=(SEGMENTS, SEGMENTS))[0, :, 0]

    i, before = np.arange(L), run(Q)
    changes = [
        np.abs(run(Q + (i == j)[:, None, None].astype(np.float32)) - before).max(-1) for j in i
    ]
    changes = np.stack(changes, axis=1)
    hidden = (i[:, None] < i) | (SEGMENTS[0][:, None] != SEGMENTS[0])
    assert not changes[hidden].any() and (changes[~hidden] > 1e-3).sum() > 2 * L


def test_near_vectors_share_buckets():
    """A vector and its multiple share all; a vector and its opposite none; of vectors at an angle
    of 0.1, most. A bucket is the number of the largest of [x R; -x R].
    """
    rng, buckets = np.random.default_rng(1), (4, 6)
    x, noise = (rng.standard_normal((50, 8)).astype(np.float32) for _ in range(2))
    near = (
        x / np.linalg.norm(x, axis=1)[:, None]
        + 0.1 * noise / np.linalg.norm(noise, axis=1)[:, None]
    )
    rotations = draw_rotations(jax.random.key(0), 1, 8, 20, buckets)
    assert rotations.shape == (1, 8, 20, 5)
    one, twice, opposite, close, other = (
        np.asarray(hash_vectors(vectors[None, :, None], rotations, buckets)[0, 0]).T
        for vectors in (x, 2 * x, -x, near, noise)
    )  # [50, 20]
    assert one.min() >= 0 and one.max() < 24 and len(np.unique(one)) == 24
    np.testing.assert_array_equal(one, twice)
    assert (one % 4 != opposite % 4).all() and (one // 4 != opposite // 4).all()
    assert (one == close).mean() > 0.7 > 0.2 > (one == other).mean()
    rotated = np.einsum("nk,krx->nrx", x, rotations[0])
    for part, digit in ((rotated[..., :2], one % 4), (rotated[..., 2:], one // 4)):
        np.testing.assert_array_equal(np.concatenate([part, -part], -1).argmax(-1), digit)


def test_keys_are_queries_of_length_one():
    keys = normalize_keys(jnp.asarray(Q))
    np.testing.assert_allclose(keys, Q / np.linalg.norm(Q, axis=-1, keepdims=True), atol=5e-5)


@pytest.mark.parametrize("buckets", [(3,), (4, 5), (0,), (2, -2)])
def test_odd_buckets_are_refused(buckets):
    with pytest.raises(ValueError, match=r"buckets: each factor must be even .*hashing.buckets"):
        draw_rotations(jax.random.key(0), 1, 8, 2, buckets)


@pytest.mark.parametrize(
    ("length", "chunk", "longest", "buckets"),
    [(64, 32, 64, (4,)), (1024, 64, 1024, (32,)), (1600, 64, 4096, (32,)), (64, 4, 64, (4, 8))],
)
def test_buckets_are_about_two_a_chunk(length, chunk, longest, buckets):
    assert choose_buckets(length, chunk, longest) == buckets
