"""A mask is what its reasons say, pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.layers.masks import Mask, causal_mask, padding_mask

pytestmark = pytest.mark.fast

VALID = np.arange(6) < np.array([[6], [4], [0]])
SEGMENTS = np.array([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]], np.int32)


@pytest.mark.parametrize(
    ("mask", "allowed"),
    [
        (padding_mask(jnp.asarray(VALID)), lambda b, l, m: VALID[b, m]),
        (causal_mask(), lambda b, l, m: m <= l),
        (causal_mask(window=2), lambda b, l, m: l - 2 < m <= l),
        (
            causal_mask(jnp.asarray(VALID), jnp.asarray(SEGMENTS)),
            lambda b, l, m: m <= l and VALID[b, m] and SEGMENTS[b, l] == SEGMENTS[b, m],
        ),
        (
            Mask(segments=(jnp.asarray(SEGMENTS), jnp.asarray(SEGMENTS))),
            lambda b, l, m: SEGMENTS[b, l] == SEGMENTS[b, m],
        ),
    ],
    ids=("padding", "causal", "window", "causal, packed and padded", "segments"),
)
def test_each_pair_is_allowed_for_its_reasons(mask, allowed):
    dense = np.broadcast_to(mask.dense(6, 6), (3, 1, 6, 6))
    expected = [[[[bool(allowed(b, l, m)) for m in range(6)] for l in range(6)]] for b in range(3)]
    assert dense.tolist() == expected


def test_no_reason_is_no_mask():
    assert Mask().dense(3, 4) is None


def test_reasons_pass_through_jit():
    @jax.jit
    def dense(mask):
        return mask.dense(6, 6)

    mask = causal_mask(jnp.asarray(VALID), window=3)
    np.testing.assert_array_equal(dense(mask), mask.dense(6, 6))


@pytest.mark.parametrize("words", [{"window": 0, "causal": True}, {"window": 4}])
def test_a_window_looks_back(words):
    with pytest.raises(
        ValueError, match="a window of . positions: it is at least 1, and looks back"
    ):
        Mask(**words)
