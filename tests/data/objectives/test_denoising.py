"""Denoising: each span is one mask, sentences are permuted whole, and the text is the target."""

import math
from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import Denoising
from data.objectives.denoising import (
    compute_poisson_cdf,
    draw_spans,
    infill_text,
    permute_sentences,
)
from data.pipeline import Stream
from data.rows import hashing

MASK = 10**6


def measure_spans(row, length):
    """Return the lengths of the spans that a row's masks hide, of tokens 0, 1, 2, ...; fail unless
    the others are in order.
    """
    found, expected, masked = [], 0, False
    for token in [*row, length]:
        if token == MASK:
            assert not masked, "two masks side by side"
            masked = True
            continue
        assert token == expected or masked, "tokens are missing without a mask"
        if masked:
            found.append(token - expected)
        expected, masked = token + 1, False
    return found


@pytest.mark.parametrize(("rate", "mean"), [(0.3, 3.0), (0.5, 1.0), (0.15, 10.0)])
def test_each_span_becomes_one_mask(rate, mean):
    rng, B, N = np.random.default_rng(0), 300, 40
    length_B = rng.integers(1, N + 1, B)
    number_B = np.rint(rate * length_B).astype(np.int64)
    spans_BS, used_BS = draw_spans(
        hashing.derive_keys(1, np.arange(B)), number_B, compute_poisson_cdf(mean), 2 * N + 16
    )
    text_BN = np.where(np.arange(N) < length_B[:, None], np.arange(N), -1)
    out_BN, out_length_B = infill_text(
        text_BN, length_B, spans_BS, used_BS, hashing.derive_keys(2, np.arange(B)), MASK
    )
    for out, size, length, spans, used, number in zip(
        out_BN, out_length_B, length_B, spans_BS, used_BS, number_B
    ):
        assert sorted(measure_spans(out[:size].tolist(), length)) == sorted(spans[used].tolist())
        assert spans.sum() == number >= used.sum()
    assert (out_length_B <= length_B).all()


def test_lengths_are_those_of_poisson_zeros_included():
    number_B = np.full(4000, 60)
    spans_BS, used_BS = draw_spans(
        hashing.derive_keys(3, np.arange(4000)), number_B, compute_poisson_cdf(3.0), 136
    )
    assert (spans_BS.sum(axis=1) == 60).all()
    first = spans_BS[:, 0]
    for k in range(8):
        p = math.exp(-3) * 3**k / math.factorial(k)
        assert abs((first == k).mean() - p) < 4 * math.sqrt(p * (1 - p) / len(first)), k
    assert abs(used_BS.sum(axis=1).mean() - 21) < 1, (
        "60 tokens, and the last span, which is cut: about one more than 60 / 3"
    )


def test_every_gap_is_equally_likely():
    rows, N = 20_000, 6
    text_BN, length_B = np.tile(np.arange(N), (rows, 1)), np.full(rows, N)
    spans_BS, used_BS = np.tile([2], (rows, 1)), np.ones((rows, 1), bool)
    out_BN, _ = infill_text(
        text_BN, length_B, spans_BS, used_BS, hashing.derive_keys(4, np.arange(rows)), MASK
    )
    counts = Counter(np.argmax(out_BN == MASK, axis=1).tolist())
    assert set(counts) == set(range(5))
    assert (
        sum((count - rows / 5) ** 2 / (rows / 5) for count in counts.values()) < 18.5
    )  # chi-square, 4 degrees, p = 0.001


def test_sentences_stay_whole_and_every_order_is_equally_likely():
    rows = 12_000
    text_BN, sentence_BN = (
        np.tile([1, 2, 3, 4, 5, 6, 0, 0], (rows, 1)),
        np.tile([7, 7, 8, 9, 9, 9, 9, 10], (rows, 1)),
    )
    out_BN = permute_sentences(
        text_BN, sentence_BN, np.full(rows, 6), hashing.derive_keys(5, np.arange(rows))
    )
    counts = Counter(map(tuple, out_BN[:, :6].tolist()))
    assert set(counts) == {
        tuple(sum(order, ())) for order in permutations([(1, 2), (3,), (4, 5, 6)])
    }
    assert (
        sum((count - rows / 6) ** 2 / (rows / 6) for count in counts.values()) < 20.5
    )  # 5 degrees
    assert (out_BN[:, 6:] == 0).all()


@pytest.mark.parametrize("shuffled", [True, False])
def test_batches_are_the_texts_and_what_is_left_of_them(bytes_store, shuffled):
    objective = Denoising(length=66, shuffled=shuffled)
    stream = Stream(bytes_store, Data(objective=objective, batch_size=16), seed=2)
    words, N = bytes_store.vocabulary, 64
    split, orders = stream.split, 0
    for step in range(6):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, objective, 16)
        row_B, _ = stream.draw_keys(step * 16 + np.arange(16))
        for row, inputs, read, targets, weights in zip(
            row_B,
            batch["encoder_token_ids"],
            batch["encoder_attention_mask"],
            batch["labels"],
            batch["label_weights"],
        ):
            start, length = (int(value[0]) for value in stream.table.locate_spans(np.array([row])))
            text = np.asarray(split.tokens[start : start + length])
            assert targets[: length + 2].tolist() == [words.bos, *text, words.eos]
            assert (
                weights.tolist() == [1.0] * (length + 2) + [0.0] * (N - length)
                and (targets[length + 2 :] == words.pad).all()
            )
            size = int(read.sum())
            assert read[:size].all() and (inputs[size:] == words.pad).all()
            assert (inputs[0], inputs[size - 1]) == (words.bos, words.eos)
            body = inputs[1 : size - 1]
            unmasked = body[body != words.mask]
            assert length - len(unmasked) == round(0.3 * length) and not Counter(
                unmasked.tolist()
            ) - Counter(text.tolist())
            rest = iter(text.tolist())
            orders += not all(
                token in rest for token in unmasked.tolist()
            )  # not a subsequence, so in another order
    assert (orders > 10) == shuffled and orders * shuffled == orders
    again = Stream(bytes_store, Data(objective=objective, batch_size=16), seed=2).build_batch(
        3, 4, 9
    )
    assert all(np.array_equal(again[key], stream.build_batch(3)[key][4:9]) for key in again)


def orders_of(body, sentences):
    """Return whether a row consists of these sentences in some order."""
    if not sentences:
        return not body
    return any(
        body[: len(one)] == one and orders_of(body[len(one) :], sentences[:i] + sentences[i + 1 :])
        for i, one in enumerate(sentences)
    )


def test_a_row_that_hides_nothing_is_its_sentences_in_another_order(bytes_store):
    stream = Stream(
        bytes_store, Data(objective=Denoising(length=66, noise_density=1e-3), batch_size=16), seed=2
    )
    split, moved = stream.split, 0
    for inputs, row in zip(
        stream.build_batch(0)["encoder_token_ids"].tolist(), stream.draw_keys(np.arange(16))[0]
    ):
        start, length = (int(value[0]) for value in stream.table.locate_spans(np.array([row])))
        edges = [
            start,
            *(int(edge) for edge in split.sentence_starts if start < edge < start + length),
            start + length,
        ]
        sentences = [split.tokens[a:b].tolist() for a, b in pairwise(edges)]
        assert orders_of(inputs[1 : 1 + length], sentences)
        moved += inputs[1 : 1 + length] != split.tokens[start : start + length].tolist()
    assert moved > 3


def test_settings_that_cannot_be_are_refused(bytes_store, t5_vocabulary):
    for wrong, message in (
        ({"length": 2}, "so at least 3 tokens"),
        ({"noise_density": 0.6}, "noise_density=0.6"),
        ({"mean_span": 0.9}, "mean_span >= 1"),
        ({"mean_span": 1e9}, "mean_span >= 1, at most length=512"),
        ({"mean_span": float("inf")}, "mean_span >= 1, at most length=512"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(bytes_store, Data(objective=Denoising(**wrong), batch_size=4), seed=0)
    with pytest.raises(ValueError, match="denoising needs the special token.s. bos, mask"):
        Denoising().check_vocabulary(t5_vocabulary)
