"""Rows of next tokens against a slow walk: one stream a source, each token told once, and the same rows in any process."""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from data.store.reader import write_store
from data.vocabulary.load import train_vocabulary


@pytest.fixture(scope="module")
def gpt_vocabulary(texts):
    return train_vocabulary(texts, 96, layout="gpt")


@pytest.fixture(scope="module")
def gpt_store(tmp_path_factory, gpt_vocabulary, texts):
    """30 training documents of 1 to 5 sentences in two sources, and 4 held-out ones."""
    encoded = iter(gpt_vocabulary.encode_batch(texts))
    documents = [[next(encoded) for _ in range(1 + i % 5)] for i in range(34)]
    sources = {"a": documents[:11], "b": documents[11:30]}
    return write_store(
        tmp_path_factory.mktemp("store") / "gpt",
        gpt_vocabulary,
        sources,
        heldout={"a": documents[30:], "b": []},
    )


def slow_rows(split, length, separator):
    """[row of length + 1 tokens], in order: every source is one list, cut so that rows share one token."""
    rows = []
    for source in split.sources:
        stream = []
        for d in range(*source.documents):
            document = split.tokens[
                split.document_starts[d] : split.document_starts[d + 1]
            ].tolist()
            stream += (
                [separator] if separator is not None and stream and document else []
            ) + document
        starts = range(0, len(stream) - 1, length)
        rows += [stream[min(start, len(stream) - length - 1) :][: length + 1] for start in starts]
    return rows


@pytest.mark.parametrize("end_of_text", [True, False])
@pytest.mark.parametrize("length", [1, 7, 64])
def test_rows_are_those_of_the_slow_walk(gpt_store, length, end_of_text):
    stream = Stream(
        gpt_store, Data(objective=CausalLm(length=length, end_of_text=end_of_text), batch_size=4)
    )
    expected = slow_rows(stream.split, length, gpt_store.vocabulary.eos if end_of_text else None)
    found = stream.build(np.arange(stream.rows), None)
    assert (
        np.concatenate([found["token_ids"], found["labels"][:, -1:]], axis=1).tolist() == expected
    )
    np.testing.assert_array_equal(found["token_ids"][:, 1:], found["labels"][:, :-1])
    assert (found["label_weights"] == 1).all() and stream.tokens_per_row == length
    assert any(gpt_store.vocabulary.eos in row for row in expected) == end_of_text
    batch_spec.check(found, stream.objective, stream.rows)


def test_each_token_but_the_first_is_told_once(gpt_store):
    """But for those of a source's last row, which is moved back to end with it."""
    stream = Stream(gpt_store, Data(objective=CausalLm(length=7), batch_size=4))
    table = stream.table
    for rows, begin, length in zip(
        np.split(np.arange(table.count), table.offsets[1:-1]), table.begin_S, table.length_S
    ):
        told = (table.starts(rows)[:, None] + 1 + np.arange(7)).ravel()
        counts = np.bincount(told - begin, minlength=length)
        assert counts[0] == 0 and (counts[1:-7] == 1).all() and set(counts[-7:].tolist()) <= {1, 2}


def test_a_batch_is_a_function_of_seed_and_step(gpt_store):
    data = Data(objective=CausalLm(length=9), batch_size=8)
    batch = Stream(gpt_store, data, seed=3).batch(41)
    again = next(Stream(gpt_store, data, seed=3).batches(start_step=41))
    other = Stream(gpt_store, data, seed=4).batch(41)
    for key in batch:
        np.testing.assert_array_equal(batch[key], again[key])
    assert not np.array_equal(batch["token_ids"], other["token_ids"])


def test_evaluation_sees_each_row_once_and_fills_the_last_batch_with_nothing(gpt_store):
    stream = Stream(gpt_store, Data(objective=CausalLm(length=9), batch_size=4), split="heldout")
    seen = [stream.evaluation_batch(i) for i in range(stream.evaluation_steps)]
    weights = np.concatenate([batch["label_weights"] for batch in seen])
    assert (
        (weights[: stream.rows] == 1).all()
        and not weights[stream.rows :].any()
        and len(weights) > stream.rows
    )


def test_refusals(gpt_store, store):
    for settings, where, message in (
        (
            CausalLm(),
            store,
            r"causal_lm needs the special token\(s\) eos, which the store's vocabulary \(sentencepiece, 96 ids\)",
        ),
        (CausalLm(length=0), gpt_store, "length=0; a row reads 1 token at least"),
        (CausalLm(length=100_000), gpt_store, "fewer than the 100001 of one row"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(where, Data(objective=settings))
    Stream(store, Data(objective=CausalLm(length=8, end_of_text=False)))
