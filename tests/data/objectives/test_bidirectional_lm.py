"""Bidirectional LM: sentences in both directions, lanes, and what is predicted once."""

import dataclasses

import numpy as np
import pytest

from data.config import Data
from data.objectives import BidirectionalLm
from data.pipeline import Stream
from data.vocabulary.spelling import spell_vocabulary
from data.vocabulary.word_level import make_word_vocabulary
from tests.small_store import write_store

SENTENCES = [
    *("a b c", "d e", "f", "g h i j k l m", "n o", "p", "q r s t"),
    *("u v w", "x y", "z a b", "c d e f", "g", "h i"),
]
LENGTH = 5


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store of documents of one to three sentences."""
    vocabulary = make_word_vocabulary(SENTENCES)
    encoded = vocabulary.encode_batch(SENTENCES)
    documents = [encoded[:3], encoded[3:5], encoded[5:6], encoded[6:9], encoded[9:]]
    folder = tmp_path_factory.mktemp("bidirectional") / "store"
    return write_store(folder, vocabulary, documents, heldout=documents[:2])


def open_stream(store, **settings):
    objective = BidirectionalLm(length=LENGTH, characters=0, **settings)
    return Stream(store, Data(objective=objective, batch_size=2))


def write_stream(vocabulary, sentences, reverse=False):
    words = [["[CLS]", *sentence.split(), "[SEP]"] for sentence in sentences]
    return [word for sentence in words for word in (sentence[::-1] if reverse else sentence)]


def test_two_lanes_read_the_stream_in_both_directions(store):
    """Joined, the rows of a lane are the stream of sentences, and the labels are one further."""
    stream, pieces = open_stream(store), store.vocabulary.pieces
    batches = [stream.build_batch(step) for step in range(5)]

    def join(key, lane, order):
        return [pieces[i] for batch in batches for i in batch[key][lane][::order]]

    for keys, order, reverse in (
        (("token_ids", "labels"), 1, False),
        (("backward_ids", "backward_labels"), -1, True),
    ):
        words = write_stream(store.vocabulary, SENTENCES, reverse)
        starts = [stream.table.locate_starts(np.array(row))[()] for row in (0, 6)]
        for lane, start in enumerate(starts):
            end = start + 5 * LENGTH
            assert join(keys[0], lane, order) == words[start:end]
            assert join(keys[1], lane, order)[:-1] == words[start + 1 : end]
    assert [batch["is_continued"].tolist() for batch in batches[:2]] == [
        [False, True],
        [True, True],
    ]


def test_a_held_out_split_predicts_each_word_once(store):
    stream = Stream(store, open_stream(store).data, split="heldout")
    counts = np.zeros(2)
    for index in range(stream.num_evaluation_batches):
        batch = stream.build_evaluation_batch(index)
        counts += [batch[key].sum() for key in ("label_weights", "backward_weights")]
    words = write_stream(store.vocabulary, SENTENCES[:5])
    assert counts.tolist() == [len(words) - 1] * 2


@pytest.mark.parametrize("key", ["token_ids", "backward_ids"])
def test_words_are_spelled(store, key):
    objective = BidirectionalLm(length=LENGTH, characters=7)
    data = Data(objective=objective, batch_size=2)
    spelled, plain = Stream(store, data), open_stream(store)
    table_VC = spell_vocabulary(store.vocabulary, 7)
    found, expected = spelled.build_batch(1), plain.build_batch(1)
    np.testing.assert_array_equal(found[key], table_VC[expected[key]])
    assert found[key].dtype == np.uint16
    for other in ("labels", "backward_labels"):
        np.testing.assert_array_equal(found[other], expected[other])


def test_each_source_begins_with_a_sentence_of_its_own(tmp_path):
    """The rows of a source hold its text alone; a sentence without a word is in none."""
    from data.store.split import MixtureSource, Split

    vocabulary = make_word_vocabulary(SENTENCES)
    encoded = vocabulary.encode_batch(SENTENCES)
    starts = np.cumsum([0, *map(len, encoded)])
    starts = np.insert(starts, 5, starts[5])
    documents = starts[[0, 4, 8, 14]]
    split = Split(
        np.concatenate(encoded),
        documents,
        starts,
        (MixtureSource("first", (0, 2), 0.5), MixtureSource("second", (2, 3), 0.5)),
    )
    table, build = BidirectionalLm(length=3, characters=0).make_rows(split, vocabulary)
    first = int(table.offsets[1])
    row = build(np.array([first]), np.zeros(1, np.uint64))
    words = write_stream(vocabulary, SENTENCES[7:])
    assert [vocabulary.pieces[i] for i in row["token_ids"][0]] == words[:3]
    assert not row["is_continued"].any()


def test_a_vocabulary_of_pieces_is_refused(tmp_path):
    from data.vocabulary.load import train_vocabulary

    vocabulary = train_vocabulary([*SENTENCES, "and more text than that"] * 20, 36)
    encoded = vocabulary.encode_batch(SENTENCES)
    store = write_store(tmp_path / "s", vocabulary, [encoded], heldout=[encoded])
    with pytest.raises(ValueError, match="reads whole words. Use `prepare --algorithm words`"):
        Stream(store, Data(objective=BidirectionalLm(length=3), batch_size=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"length": 0}, "a row has at least 1 word"), ({"characters": 2}, "characters=2: a word has")],
)
def test_settings_that_are_refused(store, change, message):
    data = Data(objective=dataclasses.replace(BidirectionalLm(length=3), **change), batch_size=1)
    with pytest.raises(ValueError, match=message):
        Stream(store, data)
