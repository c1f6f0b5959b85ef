"""The byte n-gram model equals modified Kneser-Ney by its formula, n-gram by n-gram."""

import collections

import numpy as np
import pytest

from benchmarks.papers.byte_ngrams import choose_discounts, score_bytes

RNG = np.random.default_rng(0)
# Of three letters, so that all orders have counts of 1 to 4 and more.
TRAINING = bytes(RNG.choice(list(b"abc"), 400, p=[0.6, 0.3, 0.1]).tolist())
SCORED = bytes(RNG.choice(list(b"abcd"), 60, p=[0.5, 0.3, 0.15, 0.05]).tolist())


def count_ngrams(text, n):
    return collections.Counter(text[i : i + n] for i in range(len(text) - n + 1))


def find_discounts(counts):
    n = [sum(count == k for count in counts.values()) for k in range(5)]
    if not n[1] or not n[2]:
        return [0, 0.5, 0.5, 0.5]
    y = n[1] / (n[1] + 2 * n[2])
    if not n[3] or not n[4]:
        return [0, y, y, y]
    values = [k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3)]
    return [0, *(min(max(value, 0), k + 1) for k, value in enumerate(values))]


def predict(training, history, byte, order, is_highest=True):
    """Return p(byte | history) by the recursion of Chen and Goodman's section 3."""
    if order == 0:
        return 1 / 256
    if len(history) < order - 1:
        return predict(training, history, byte, order - 1, False)
    counts = count_ngrams(training, order)
    if not is_highest:
        counts = collections.Counter(gram[1:] for gram in count_ngrams(training, order + 1))
    context = history[len(history) - order + 1 :]
    following = {gram: c for gram, c in counts.items() if gram[:-1] == context}
    total = sum(following.values())
    lower = predict(training, history, byte, order - 1, False)
    if not total:
        return lower
    discount = find_discounts(counts)
    count = following.get(context + bytes([byte]), 0)
    left = sum(discount[min(c, 3)] for c in following.values())
    return (count - discount[min(count, 3)] + left * lower) / total


@pytest.mark.fast
def test_probabilities_are_those_of_the_formula():
    """Each byte by each order; the first bytes have fewer than order - 1 before them."""
    found = score_bytes(TRAINING, SCORED, 5)
    assert found.shape == (5, len(SCORED))
    for i in range(0, len(SCORED), 3):
        for order in range(1, 6):
            expected = predict(TRAINING, SCORED[:i], SCORED[i], order)
            assert found[order - 1, i] == pytest.approx(expected, rel=1e-12)


@pytest.mark.fast
@pytest.mark.parametrize("history", [b"", b"a", b"abacab", b"zza", TRAINING[-7:]])
def test_probabilities_of_all_bytes_sum_to_1(history):
    rows = [score_bytes(TRAINING, history + bytes([byte]), 6)[:, -1] for byte in range(256)]
    np.testing.assert_allclose(np.sum(rows, axis=0), 1.0, rtol=1e-12)
    assert np.min(rows) > 0


@pytest.mark.fast
def test_discounts_are_those_of_the_counts_of_counts():
    """n1 = 10, n2 = 4, n3 = 3, n4 = 1: Y = 10 / 18."""
    counts = np.repeat([1, 2, 3, 4, 9], [10, 4, 3, 1, 2])
    y = 10 / 18
    expected = [0, 1 - 2 * y * 0.4, 2 - 3 * y * 0.75, 3 - 4 * y / 3]
    np.testing.assert_allclose(choose_discounts(counts), expected)


@pytest.mark.fast
def test_a_repeated_text_is_known_by_long_orders():
    text = bytes(RNG.integers(0, 256, 3_000).tolist())
    bits = -np.log2(score_bytes(text, text, 12)).mean(axis=1)
    assert bits[0] > 7.5 and bits[11] < 0.5 * bits[1]


@pytest.mark.fast
def test_texts_that_are_too_short_are_refused():
    with pytest.raises(ValueError, match="20 bytes of training text.*order 20"):
        score_bytes(b"a" * 20, b"a", 20)
    with pytest.raises(ValueError, match="0 of scored text"):
        score_bytes(b"a" * 21, b"", 20)
