"""Rows of two segments in either order: layout, labels, n-grams, and the documents that they come
from.
"""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import SentenceOrder, SentencePair
from data.objectives.masking import Masker, find_ngram_starts
from data.pipeline import Stream
from data.rows import hashing
from tests.small_store import write_store


@pytest.fixture(scope="module")
def numbered_store(tmp_path_factory, vocabulary):
    """Return a store whose ids show their document: document d is 5 + d, 5 + d, ..., one is 60 +
    the sentence's number, one is a single token.
    """
    rng = np.random.default_rng(0)
    documents = [
        [
            [5 + d, *[5 + d] * int(n), 60 + s]
            for s, n in enumerate(rng.integers(2, 9, rng.integers(2, 9)))
        ]
        for d in range(50)
    ]
    documents[7] = [[12]]
    return write_store(
        tmp_path_factory.mktemp("told") / "store", vocabulary, documents, heldout=documents[:1]
    )


def restore_originals(batch):
    """Return the ids of a batch with the original tokens instead of the masks."""
    tokens = batch["token_ids"].copy()
    for i, j in zip(*np.nonzero(batch["label_weights"])):
        tokens[i, batch["masked_positions"][i, j]] = batch["labels"][i, j]
    return tokens


def segments_of(batch, vocabulary):
    """Return the (first, second) ids of each row."""
    for row, valid in zip(restore_originals(batch).tolist(), batch["attention_mask"]):
        end = int(valid.sum())
        separators = [i for i in range(end) if row[i] == vocabulary.sep]
        assert row[0] == vocabulary.cls and len(separators) == 2 and separators[1] == end - 1
        yield row[1 : separators[0]], row[separators[0] + 1 : end - 1]


def test_both_come_from_one_document_in_both_orders(numbered_store, vocabulary):
    """Lan et al. (2020), section 3.1: the first token shows its sentence and so the order; swapping
    the segments flips the label.
    """
    objective = SentenceOrder(length=40, max_predictions=8)
    stream = Stream(numbered_store, Data(objective=objective, batch_size=50), seed=2)
    behind = rows = single = 0
    for step in range(40):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, objective, 50)
        labels = zip(
            segments_of(batch, vocabulary),
            batch["token_type_ids"],
            batch["sentence_order_labels"],
            batch["sentence_order_weights"],
        )
        for (first, second), segments, order, weight in labels:
            assert segments.tolist() == [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * (
                37 - len(first) - len(second)
            )
            if not weight:
                assert sorted((first, second)) == [[], [12]]  # the document of a single token
                single += 1
                continue
            documents = {token for token in first + second if token < 60}
            sentences = [[token for token in part if token >= 60] for part in (first, second)]
            assert len(documents) == 1
            if all(sentences):
                assert (sentences[0] > sentences[1]) == bool(order)
            behind, rows = behind + order, rows + 1
        at = np.take_along_axis(restore_originals(batch), batch["masked_positions"], axis=1)
        assert (at >= 5)[batch["label_weights"] == 1].all()  # no special token was masked
    assert abs(behind / rows - 0.5) < 4 * 0.5 / np.sqrt(rows) and single


def test_the_order_is_all_that_differs_from_berts_true_pairs(numbered_store):
    """The chunks are sentence_pair's, split at the same places, with A and B in either
    order.
    """
    order = Stream(
        numbered_store,
        Data(objective=SentenceOrder(length=40, max_predictions=8), batch_size=64),
        seed=2,
    )
    pair = Stream(
        numbered_store,
        Data(objective=SentencePair(length=40, max_predictions=8, random_next=0.0), batch_size=64),
        seed=2,
    )
    one, other = order.build_batch(1), pair.build_batch(1)
    follows = other["next_sentence_labels"] == 0
    rows = zip(
        segments_of(one, order.vocabulary),
        segments_of(other, pair.vocabulary),
        one["sentence_order_labels"],
    )
    assert all(
        (a, b)[:: -1 if swapped else 1] == expected
        for ((a, b), expected, swapped), real in zip(rows, follows)
        if real
    )


def test_lengths_of_ngrams(vocabulary):
    """p(n) is 6/11, 3/11, 2/11 (section 4.1), measured on rows without special tokens in between."""
    begin_W = np.arange(400 * 300)
    starts = find_ngram_starts(
        begin_W, np.ones((400, 300), bool), hashing.derive_keys(1, np.arange(400)), 3
    ).reshape(400, 300)
    lengths = np.concatenate([np.diff(np.flatnonzero(row)) for row in starts])
    assert starts[:, 0].all() and lengths.max() == 3
    shares = np.bincount(lengths, minlength=4)[1:] / len(lengths)
    np.testing.assert_allclose(shares, np.array([6, 3, 2]) / 11, atol=0.01)
    again = find_ngram_starts(
        begin_W, np.ones((400, 300), bool), hashing.derive_keys(1, np.arange(400)), 3
    )
    assert np.array_equal(again.reshape(400, 300), starts)


def test_ngrams_end_where_a_word_may_not_be_masked():
    """Words have 1 to 3 tokens. Every fifth is special: it is a word by itself, and a new word
    follows it.
    """
    rng = np.random.default_rng(0)
    begins = rng.random((50, 64)) < 0.6
    begins[:, 0] = True
    begin_W = np.flatnonzero(begins)
    word_BL = np.cumsum(begins, axis=1) - 1
    candidate_BL = word_BL % 5 != 3
    starts_W = find_ngram_starts(begin_W, candidate_BL, hashing.derive_keys(4, np.arange(50)), 3)
    candidate_W, first_W = candidate_BL.ravel()[begin_W], begin_W % 64 == 0
    assert starts_W[~candidate_W].all() and starts_W[first_W].all()
    assert starts_W[np.append(False, ~candidate_W[:-1])].all()
    lengths = np.diff(np.flatnonzero(np.append(starts_W, True)))
    assert 1 < lengths.mean() and lengths.max() <= 3


@pytest.mark.parametrize("ngram", [1, 3])
def test_the_number_of_masked_words_stays(store, ngram):
    """15 % of each row is masked, as with single words; shorter n-grams fill what longer ones
    leave.
    """
    stream = Stream(
        store,
        Data(
            objective=SentenceOrder(length=60, max_predictions=9, ngram=ngram, short_seq_prob=0.0),
            batch_size=64,
        ),
        seed=1,
    )
    masked = wanted = neighbours = 0
    for step in range(20):
        batch = stream.build_batch(step)
        words_B = (
            batch["attention_mask"] & ~stream.vocabulary.special[restore_originals(batch)]
        ).sum(axis=1)
        wanted_B = np.minimum(np.maximum(np.rint(words_B * 0.15), 1), 9)
        masked_B = batch["label_weights"].sum(axis=1)
        assert (masked_B <= wanted_B).all()
        masked, wanted = masked + masked_B.sum(), wanted + wanted_B.sum()
        used = batch["label_weights"] == 1
        neighbours += (np.diff(batch["masked_positions"], axis=1) == 1)[used[:, 1:]].sum()
    assert masked > 0.97 * wanted
    assert (neighbours / masked > 0.45) == (ngram > 1)


def test_an_ngram_is_masked_as_a_whole_or_not_at_all(vocabulary):
    words = np.flatnonzero(vocabulary.starts_word & ~vocabulary.special)  # each is a word by itself
    tokens, keys = (
        np.random.default_rng(0).choice(words, (40, 50)).astype(np.int32),
        hashing.derive_keys(9, np.arange(40)),
    )
    tokens[:, 20] = vocabulary.sep
    candidates = ~vocabulary.special[tokens]
    starts = find_ngram_starts(np.arange(tokens.size), candidates, keys, 3)
    batch = Masker(SentenceOrder(length=50, max_predictions=9), vocabulary, ngram=3)(
        tokens, np.ones(tokens.shape, bool), keys
    )
    masked = np.zeros(tokens.shape, bool)
    row, slot = np.nonzero(batch["label_weights"])
    masked[row, batch["masked_positions"][row, slot]] = True
    grams = np.split(masked.ravel(), np.flatnonzero(starts)[1:])
    assert all(gram.all() or not gram.any() for gram in grams)
    assert {len(gram) for gram in grams if gram.all()} == {1, 2, 3}


def test_one_document_is_enough_and_refusals(numbered_store, vocabulary):
    stream = Stream(numbered_store, Data(objective=SentenceOrder(40, 8)), split="heldout")
    assert set(stream.build_evaluation_batch(0)["sentence_order_weights"][: stream.num_rows]) == {
        1.0
    }
    for objective, message in (
        (SentenceOrder(length=7), "length=7"),
        (SentenceOrder(short_seq_prob=1.5), "short_seq_prob=1.5"),
        (SentenceOrder(ngram=0), "ngram=0"),
        (SentenceOrder(max_predictions=75), "max_predictions=75 is fewer than the 76"),
    ):
        with pytest.raises(ValueError, match=message):
            objective.check_vocabulary(vocabulary)
