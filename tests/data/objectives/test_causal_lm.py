"""Causal rows equal a slow reference's: one token stream per source, each token predicted
once, the same in any process.
"""

from functools import partial

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import CausalLm
from data.pipeline import Stream
from data.vocabulary.load import train_vocabulary
from tests.small_store import write_store


@pytest.fixture(scope="module")
def gpt_vocabulary(texts):
    return train_vocabulary(texts, 96, layout="gpt")


@pytest.fixture(scope="module")
def gpt_store(tmp_path_factory, gpt_vocabulary, texts):
    """Return a store of 30 training documents of 1 to 5 sentences in two sources, and 4 held-out
    ones.
    """
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
    """Return the rows of length + 1 tokens, in order: each source is one list, split so that rows
    share one token.
    """
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
def test_rows_equal_those_of_the_slow_reference(gpt_store, length, end_of_text):
    stream = Stream(
        gpt_store, Data(objective=CausalLm(length=length, end_of_text=end_of_text), batch_size=4)
    )
    expected = slow_rows(stream.split, length, gpt_store.vocabulary.eos if end_of_text else None)
    found = stream.build(np.arange(stream.num_rows), None)
    assert (
        np.concatenate([found["token_ids"], found["labels"][:, -1:]], axis=1).tolist() == expected
    )
    np.testing.assert_array_equal(found["token_ids"][:, 1:], found["labels"][:, :-1])
    assert (found["label_weights"] == 1).all() and stream.tokens_per_row == length
    assert any(gpt_store.vocabulary.eos in row for row in expected) == end_of_text
    batch_spec.check_batch(found, stream.objective, stream.num_rows)


def test_each_token_but_the_first_is_predicted_once(gpt_store):
    """The last row of a source is the exception: it is moved back to end with the source."""
    stream = Stream(gpt_store, Data(objective=CausalLm(length=7), batch_size=4))
    table = stream.table
    for rows, begin, length in zip(
        np.split(np.arange(table.count), table.offsets[1:-1]), table.begin_S, table.length_S
    ):
        target_positions = (table.locate_starts(rows)[:, None] + 1 + np.arange(7)).ravel()
        counts = np.bincount(target_positions - begin, minlength=length)
        assert counts[0] == 0 and (counts[1:-7] == 1).all() and set(counts[-7:].tolist()) <= {1, 2}


def test_a_batch_is_a_function_of_seed_and_step(gpt_store):
    data = Data(objective=CausalLm(length=9), batch_size=8)
    batch = Stream(gpt_store, data, seed=3).build_batch(41)
    again = next(Stream(gpt_store, data, seed=3).iterate_batches(start_step=41))
    other = Stream(gpt_store, data, seed=4).build_batch(41)
    for key in batch:
        np.testing.assert_array_equal(batch[key], again[key])
    assert not np.array_equal(batch["token_ids"], other["token_ids"])


def test_evaluation_reads_each_row_once_and_pads_the_last_batch(gpt_store):
    stream = Stream(gpt_store, Data(objective=CausalLm(length=9), batch_size=4), split="heldout")
    seen = [stream.build_evaluation_batch(i) for i in range(stream.num_evaluation_batches)]
    weights = np.concatenate([batch["label_weights"] for batch in seen])
    assert weights[: stream.num_rows, -1].all() and not weights[stream.num_rows :].any()
    assert len(weights) > stream.num_rows
    # The last row repeats some tokens of the row before it (tests/data/test_scored_once.py).
    assert (weights[: stream.num_rows - 1] == 1).all()
    assert weights.sum() == stream.table.length_S.sum() - 1


def test_refusals(gpt_store, store):
    for settings, where, message in (
        (
            CausalLm(),
            store,
            r"causal_lm needs the special token\(s\) eos, which the store's vocabulary \(sentencepiece, 96 ids\)",
        ),
        (CausalLm(length=0), gpt_store, "length=0; a row has at least 1 token"),
        (CausalLm(length=100_000), gpt_store, "fewer than the 100001 of one row"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(where, Data(objective=settings))
    Stream(store, Data(objective=CausalLm(length=8, end_of_text=False)))


# ---- rows on lanes -----------------------------------------------------------


def lane_stream(gpt_store, length, batch_size, rates=(), **options):
    objective = CausalLm(length=length, order="lanes", **options)
    return Stream(gpt_store, Data(objective=objective, batch_size=batch_size, rates=rates), seed=5)


@pytest.mark.parametrize("batch_size", [2, 3, 8])
def test_a_lane_continues_where_it_ended(gpt_store, batch_size):
    """The rows of a lane are consecutive in its source, and continue at its start after the last."""
    stream = lane_stream(gpt_store, 7, batch_size)
    expected = slow_rows(stream.split, 7, gpt_store.vocabulary.eos)
    before, closed = None, 0
    for step in range(2 * stream.num_rows):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, stream.objective, batch_size, gpt_store.vocabulary)
        _, _, row_B = stream.load_rows(step * batch_size + np.arange(batch_size))
        for lane, row in enumerate(row_B.tolist()):
            tokens = [*batch["token_ids"][lane].tolist(), batch["labels"][lane, -1]]
            begins = row in stream.table.offsets
            assert tokens == expected[row] and batch["is_continued"][lane] == (not begins)
            if before and not begins:
                assert row == before[0][lane] + 1
                assert tokens[0] == before[1]["labels"][lane, -1]
            closed += begins and step > 0
        before = row_B.tolist(), batch
    assert closed > 0


def test_lanes_read_each_whole_row_equally_often_and_start_apart(gpt_store):
    stream, rows = lane_stream(gpt_store, 5, 4, rates=(0.5, 0.5)), []
    steps = int(np.lcm.reduce(stream.table.whole_S))
    part, _, row = stream.load_rows(np.arange(4 * steps))
    assert np.bincount(part).tolist() == [2 * steps, 2 * steps]
    for s in (0, 1):
        rows = row[part == s] - stream.table.offsets[s]
        counts = np.bincount(rows, minlength=stream.table.whole_S[s])
        assert (counts == 2 * steps // stream.table.whole_S[s]).all()
        first = rows[:2]
        assert first.tolist() == [0, stream.table.whole_S[s] // 2]


@pytest.mark.parametrize("separate", [False, True])
def test_lanes_are_the_same_on_any_hosts_and_from_any_step(gpt_store, separate):
    make = partial(lane_stream, gpt_store, 6, 4, separate_documents=separate)
    whole = make().build_batch(9)
    assert ("segment_ids" in whole) == separate
    for lo, hi in ((0, 1), (1, 4)):
        part = next(make().iterate_batches(9, lo, hi))
        assert all((part[key] == whole[key][lo:hi]).all() for key in whole)


def test_a_share_of_the_rows_begins_with_a_state_of_zeros(gpt_store):
    """Other rows are as without; the draw is the same on any hosts; an evaluation draws nothing."""
    rates = {}
    for rate in (0.0, 0.25):
        stream = lane_stream(gpt_store, 6, 8, zero_state_rate=rate)
        batches = [stream.build_batch(step) for step in range(400)]
        rates[rate] = np.array([batch["is_continued"] for batch in batches])
        whole, later = batches[9], lane_stream(gpt_store, 6, 8, zero_state_rate=rate)
        part = next(later.iterate_batches(9, 3, 8))
        assert all((part[key] == whole[key][3:]).all() for key in whole)
        held = Stream(gpt_store, stream.data, split="heldout")
        scored = [batch["is_continued"] for batch in held.iterate_evaluation_batches()]
        assert not scored[0].any() and np.concatenate(scored[1:] or scored).sum() > 0
    assert (rates[0.25] <= rates[0.0]).all()  # a row that begins a source stays so
    share = 1 - rates[0.25].sum() / rates[0.0].sum()
    assert abs(share - 0.25) < 4 * np.sqrt(0.25 * 0.75 / rates[0.0].sum())
    for rate in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"zero_state_rate={rate}"):
            lane_stream(gpt_store, 6, 8, zero_state_rate=rate)


def test_lanes_that_do_not_fit_are_refused(gpt_store):
    for batch_size, rates, message in (
        (500, (), r"the source 'a' has \d+ rows for \d+ lanes: lower data.batch_size"),
        (1, (), "data.batch_size=1 lanes for 2 sources"),
        (4, (1.0,), "data.rates has 1 values, but the store has 2 sources: a, b"),
        (4, (-1.0, 2.0), "rates are 0 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            lane_stream(gpt_store, 7, batch_size, rates).build_batch(0)
    alone = lane_stream(gpt_store, 7, 3, (0.0, 1.0))
    assert set(alone.load_rows(np.arange(9))[0]) == {1}
    with pytest.raises(ValueError, match="rows on lanes need the batch size"):
        alone.start_at_row(3, 12)
    held = Stream(
        gpt_store, Data(objective=CausalLm(7, order="lanes"), batch_size=50), split="heldout"
    )
    assert len(list(held.iterate_evaluation_batches())) == 1  # an evaluation may have empty lanes


@pytest.mark.parametrize("batch_size", [1, 2, 3, 50])
def test_an_evaluation_reads_lane_by_lane(gpt_store, batch_size):
    """Each row once, and each lane its rows in order; a lane begins with a state of its own."""
    data = Data(objective=CausalLm(6, order="lanes"), batch_size=batch_size)
    held = Stream(gpt_store, data, split="heldout")
    plain = Stream(gpt_store, Data(objective=CausalLm(6), batch_size=1), split="heldout")
    rows = {
        tuple(plain.build_evaluation_batch(i)["token_ids"][0]): i for i in range(plain.num_rows)
    }
    assert len(rows) == plain.num_rows > 3
    assert held.table.whole_S[0] == held.num_rows - 1  # the last row is moved back
    before, seen, counts = None, [], []
    for index in range(held.num_evaluation_batches):
        batch = held.build_evaluation_batch(index)
        real = batch["label_weights"].any(axis=1)
        counts.append(held.describe_evaluation_batch(index)[1])
        assert counts[-1] == real.sum() and not real[counts[-1] :].any()
        read = [rows[tuple(ids)] for ids in batch["token_ids"]]
        seen += [row for row, is_real in zip(read, real) if is_real]
        for lane in np.flatnonzero(real):
            follows = index > 0 and read[lane] == before[lane] + 1
            assert follows == (index > 0)
            moved = read[lane] == held.num_rows - 1
            assert batch["is_continued"][lane] == (follows and not moved)
        half = held.build_evaluation_batch(index, batch_size // 2, batch_size)
        assert all((half[key] == batch[key][batch_size // 2 :]).all() for key in batch)
        before = read
    assert sorted(seen) == list(range(held.num_rows)) and sum(counts) == held.num_rows


@pytest.mark.parametrize("length", [3, 7, 20])
def test_separate_documents_are_marked_and_begin_anew(gpt_store, length):
    """By a slow count of separators in each row; a row that begins with one continues nothing."""
    stream = lane_stream(gpt_store, length, 2, separate_documents=True)
    batch = stream.build(np.arange(stream.num_rows), None)
    batch_spec.check_batch(batch, stream.objective, stream.num_rows, gpt_store.vocabulary)
    eos, begun = gpt_store.vocabulary.eos, 0
    plain = lane_stream(gpt_store, length, 2).build(np.arange(stream.num_rows), None)
    for row, ids in enumerate(batch["token_ids"]):
        number, expected = 1, []
        for place, token in enumerate(ids):
            number += token == eos and place > 0
            expected.append(number)
        assert batch["segment_ids"][row].tolist() == expected
        begins = ids[0] == eos
        assert batch["is_continued"][row] == (plain["is_continued"][row] and not begins)
        begun += begins
    assert begun and batch["segment_ids"].max() > 1 and batch["is_continued"].any()
    assert not lane_stream(gpt_store, length, 2).build(np.arange(1), None).keys() & {"segment_ids"}


@pytest.mark.parametrize("settings", [{}, {"order": "lanes", "end_of_text": False}], ids=str)
def test_separate_documents_need_lanes_and_separators(gpt_store, settings):
    objective = CausalLm(7, separate_documents=True, **settings)
    with pytest.raises(ValueError, match="separate_documents=true with order=.* it needs rows"):
        Stream(gpt_store, Data(objective=objective, batch_size=2))
