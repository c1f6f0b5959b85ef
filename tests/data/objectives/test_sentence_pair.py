"""Rows of two segments: layout, labels, and the documents that they come from."""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import SentencePair
from data.pipeline import Stream
from tests.small_store import write_store


@pytest.fixture(scope="module")
def numbered_store(tmp_path_factory, vocabulary):
    """Return a store whose ids show their document: every token of document d is 5 + d."""
    rng = np.random.default_rng(0)
    documents = [
        [[5 + d] * int(n) for n in rng.integers(3, 15, rng.integers(2, 9))] for d in range(90)
    ]
    return write_store(
        tmp_path_factory.mktemp("told") / "store", vocabulary, documents, heldout=documents[:1]
    )


def restore_originals(batch):
    """Return the ids of a batch with the original tokens instead of the masks."""
    tokens = batch["token_ids"].copy()
    for i, j in zip(*np.nonzero(batch["label_weights"])):
        tokens[i, batch["masked_positions"][i, j]] = batch["labels"][i, j]
    return tokens


@pytest.mark.parametrize("whole_words", [False, True])
def test_layout_labels_and_documents(numbered_store, vocabulary, whole_words):
    objective = SentencePair(length=40, max_predictions=8, whole_words=whole_words)
    stream = Stream(numbered_store, Data(objective=objective, batch_size=50), seed=2)
    others = short = rows = 0
    for step in range(40):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, objective, 50)
        for row, valid, segments, label in zip(
            restore_originals(batch),
            batch["attention_mask"],
            batch["token_type_ids"],
            batch["next_sentence_labels"],
        ):
            end = int(valid.sum())
            assert (
                valid[:end].all()
                and (row[end:] == vocabulary.pad).all()
                and not segments[end:].any()
            )
            separators = np.flatnonzero(row == vocabulary.sep).tolist()
            assert row[0] == vocabulary.cls and len(separators) == 2 and separators[1] == end - 1
            assert segments[:end].tolist() == [0] * (separators[0] + 1) + [1] * (
                end - separators[0] - 1
            )
            first, second = (
                set(row[1 : separators[0]].tolist()),
                set(row[separators[0] + 1 : end - 1].tolist()),
            )
            assert len(first) == len(second) == 1  # one document each
            assert (first != second) == bool(label)
            others, rows, short = others + label, rows + 1, short + (end < 20)
        assert (batch["next_sentence_weights"] == 1).all()
        at = np.take_along_axis(restore_originals(batch), batch["masked_positions"], axis=1)
        assert (at >= 5)[batch["label_weights"] == 1].all()  # no special token was masked
    assert abs(others / rows - 0.5) < 4 * 0.5 / np.sqrt(rows)
    assert (
        0.02 < short / rows < 0.12
    )  # from the 10 % with a target length of 2 to 37 tokens, and the ends of documents


@pytest.mark.parametrize(("short", "random_next"), [(0.0, 0.0), (0.0, 1.0)])
def test_extremes(numbered_store, short, random_next):
    objective = SentencePair(
        length=40, max_predictions=8, short_seq_prob=short, random_next=random_next
    )
    stream = Stream(numbered_store, Data(objective=objective, batch_size=64), seed=2)
    assert (stream.build_batch(3)["next_sentence_labels"] == random_next).all()


def test_versions_repeat_after_the_duplicates(numbered_store):
    stream = Stream(
        numbered_store, Data(objective=SentencePair(40, 8, dupe_factor=2), batch_size=1), seed=2
    )
    by_row = [{}, {}, {}]
    for step in range(3 * stream.num_rows):
        _, (epoch,), (row,) = stream.load_rows(np.array([step]))
        by_row[epoch][row] = stream.build_batch(step)
    same = [
        sum(
            np.array_equal(by_row[0][row]["token_ids"], by_row[e][row]["token_ids"])
            for row in range(stream.num_rows)
        )
        for e in (1, 2)
    ]
    assert same[1] == stream.num_rows and same[0] < stream.num_rows / 5


def test_refusals(numbered_store, vocabulary):
    with pytest.raises(ValueError, match="the heldout split of .*: there is only 1 document"):
        Stream(numbered_store, Data(objective=SentencePair(40, 8)), split="heldout")
    for objective, message in (
        (SentencePair(length=7), "length=7"),
        (SentencePair(short_seq_prob=1.5), "short_seq_prob=1.5"),
        (SentencePair(random_next=-0.5), "random_next=-0.5"),
        (SentencePair(max_predictions=18), "max_predictions=18 is fewer than the 19"),
    ):
        with pytest.raises(ValueError, match=message):
            objective.check_vocabulary(vocabulary)
