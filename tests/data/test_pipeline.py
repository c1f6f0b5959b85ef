"""A batch is a pure function of seed and step; an epoch reads every row once, across seeks, hosts
and mixtures.
"""

import contextlib
import dataclasses
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import MaskedLm, ReplacedToken, SentenceOrder, SentencePair, SpanCorruption
from data.pipeline import Stream
from data.read_ahead import MAX_BATCHES
from data.rows.ramp import Ramp
from data.rows.tables import TokenReader
from data.tf_dataset import read_elements
from tests.feeds import needs_tensorflow, with_each_feed
from tests.small_store import write_store

OBJECTIVES = {
    "pieces": MaskedLm(length=22, max_predictions=4, rows="documents"),
    "crops": MaskedLm(length=22, max_predictions=4, rows="crops"),
    "joined": MaskedLm(length=22, max_predictions=4, rows="windows"),
    "sentences": MaskedLm(length=22, max_predictions=4, rows="sentences"),
    "packed": MaskedLm(length=48, max_predictions=7, rows="packed"),
    "words": MaskedLm(
        length=22, max_predictions=4, whole_words=True, dupe_factor=3, rows="documents"
    ),
    "ramped": MaskedLm(length=22, max_predictions=8, mask_ramp=Ramp(0.4, 1, 40), rows="documents"),
    "pairs": SentencePair(length=30, max_predictions=5),
    "spans": SpanCorruption(inputs=40),
    "orders": SentenceOrder(length=30, max_predictions=5),
    "replaced": ReplacedToken(length=22, max_predictions=4, rows="documents"),
}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory, vocabulary):
    """Return a store of three sources with rates that differ from their sizes. Every row of 6
    tokens is unique.
    """
    rng = np.random.default_rng(0)

    def make_source(documents):
        return [
            [rng.integers(5, vocabulary.size, 6).tolist() for _ in range(1 + d % 4)]
            for d in range(documents)
        ]

    documents = {"large": make_source(40), "small": make_source(7), "middle": make_source(20)}
    heldout = {"large": make_source(6), "small": [], "middle": make_source(3)}
    rates = {"large": 0.5, "small": 0.2, "middle": 0.3}
    path = tmp_path_factory.mktemp("mixed") / "store"
    return write_store(path, vocabulary, documents, heldout=heldout, rates=rates)


@pytest.fixture
def make(store, t5_store):
    """Return make(name of an objective, seed=..., **fields of Data): a Stream."""

    def make_stream(name, seed=3, batch_size=8, **fields):
        data = Data(objective=OBJECTIVES[name], batch_size=batch_size, **fields)
        return Stream(t5_store if name == "spans" else store, data, seed=seed)

    return make_stream


def are_equal(one, other):
    return one.keys() == other.keys() and all(
        one[key].dtype == other[key].dtype and np.array_equal(one[key], other[key]) for key in one
    )


def join_parts(parts):
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batches_are_pure_and_the_same_on_any_number_of_hosts(make, name):
    stream, again, other = make(name), make(name), make(name, seed=4)
    for step in (0, 1, stream.num_rows // 8, 10**9):  # the third contains an epoch boundary
        whole = stream.build_batch(step)
        batch_spec.check_batch(whole, stream.objective, 8)
        assert are_equal(whole, again.build_batch(step)) and not are_equal(
            whole, other.build_batch(step)
        )
        for hosts in (2, 4, 8):
            size = 8 // hosts
            assert are_equal(
                whole,
                join_parts(
                    [stream.build_batch(step, h * size, (h + 1) * size) for h in range(hosts)]
                ),
            )
    assert not are_equal(stream.build_batch(0), stream.build_batch(1))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_host_reads_only_the_tokens_of_its_own_rows(make, name, monkeypatch):
    """Reads of the store are counted: several hosts together read what one host reads."""
    stream, read, known = make(name), [], TokenReader.check_ids
    monkeypatch.setattr(
        TokenReader, "check_ids", lambda self, ids_BN: read.append(ids_BN) or known(self, ids_BN)
    )

    def find_reads(lo, hi):
        read.clear()
        stream.build_batch(3, lo, hi)
        return list(read)

    whole = find_reads(0, 8)
    assert len(whole[0]) == 8
    for hosts in (2, 4):
        size = 8 // hosts
        shares = [find_reads(host * size, (host + 1) * size) for host in range(hosts)]
        assert all(len(share[0]) == size for share in shares)
        for all_BN, *parts in zip(whole, *shares, strict=True):
            np.testing.assert_array_equal(all_BN, np.concatenate(parts))


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if name != "ramped"])
def test_the_batch_size_does_not_change_the_examples(make, name):
    small, large = make(name, batch_size=4), make(name, batch_size=12)
    assert are_equal(
        join_parts([small.build_batch(step) for step in range(6)]),
        join_parts([large.build_batch(step) for step in range(2)]),
    )


@pytest.mark.held_by(4)
@with_each_feed
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.slow
def test_a_feed_gives_the_same_batches_from_any_step(make, name, feed):
    stream = make(name, feed=feed)
    for start, lo, hi in ((0, 0, 8), (7, 2, 4), (10**12, 0, 8)):
        iterator = stream.iterate_batches(start, lo, hi)
        for step in range(start, start + 5):
            assert are_equal(next(iterator), stream.build_batch(step, lo, hi))
        iterator.close()


@pytest.mark.held_by(2)
@needs_tensorflow
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.slow
def test_a_dataset_has_the_same_batches_and_the_shapes_of_the_batch_spec(make, name):
    stream = make(name)
    dataset = stream.make_dataset(5, 0, 4)
    tensors = dataset.as_numpy_iterator()
    assert are_equal(next(tensors), stream.build_batch(5, 0, 4)) and are_equal(
        next(tensors), stream.build_batch(6, 0, 4)
    )
    spec = dataset.element_spec
    expected = batch_spec.compute_shapes(stream.objective, 4)
    assert {key: (item.dtype.as_numpy_dtype, tuple(item.shape)) for key, item in spec.items()} == {
        key: (dtype.type, shape) for key, (dtype, shape) in expected.items()
    }


@with_each_feed
def test_batches_come_in_order_however_long_each_takes(make, feed):
    stream = make("pieces", threads=2, feed=feed)
    batch = stream.build_batch
    stream.build_batch = lambda step, *share: (
        time.sleep(0.05 * (step % 3 == 0)) or batch(step, *share)
    )
    iterator = stream.iterate_batches()
    assert all(are_equal(next(iterator), batch(step)) for step in range(8 * MAX_BATCHES))
    iterator.close()


def unmask_tokens(batch):
    """Return rows of masked_lm with the original tokens."""
    tokens = batch["token_ids"].copy()
    for i, j in zip(*np.nonzero(batch["label_weights"])):
        tokens[i, batch["masked_positions"][i, j]] = batch["labels"][i, j]
    return [tuple(row) for row in tokens.tolist()]


@with_each_feed
@pytest.mark.parametrize("hosts", [1, 2, 4])
@pytest.mark.slow
def test_ledger(mixed, hosts, feed):
    """Log every row as hosts read them, with stops and seeks, over many epochs.

    The small source has 7 documents of 17 rows and a fifth of a batch: its epochs end often, and
    never with a batch.
    """
    objective = MaskedLm(length=8, max_predictions=2, rows="documents")
    data = Data(objective=objective, batch_size=12, feed=feed)
    size, steps = 12 // hosts, 60
    ledger = [None] * (12 * steps)
    for begin, end in (
        (0, 13),
        (13, 14),
        (40, steps),
        (14, 40),
    ):  # a new process each time, out of order
        for host in range(hosts):
            iterator = Stream(mixed, data, seed=9).iterate_batches(
                begin, host * size, (host + 1) * size
            )
            for step in range(begin, end):
                at = step * 12 + host * size
                ledger[at : at + size] = unmask_tokens(next(iterator))
            iterator.close()
    vocabulary, split = mixed.vocabulary, mixed.open_split("train")
    rows = [
        (vocabulary.cls, *split.tokens[i : i + 6].tolist(), vocabulary.sep)
        for i in range(0, len(split.tokens), 6)
    ]
    epochs_ended, used = 0, 0
    for source in split.sources:
        lo, hi = (int(split.document_starts[d]) // 6 for d in source.documents)
        own = Counter(rows[lo:hi])
        assert max(own.values()) == 1
        logged = [row for row in ledger if row in own]
        used += len(logged)
        assert abs(len(logged) / len(ledger) - source.rate) < 0.02
        for begin in range(0, len(logged), len(own)):
            epoch = Counter(logged[begin : begin + len(own)])
            assert max(epoch.values()) == 1  # none repeated
            if sum(epoch.values()) == len(own):
                assert epoch == own  # none missing
                epochs_ended += 1
        assert (
            logged[: len(own)] != logged[len(own) : 2 * len(own)]
        )  # another order in the next epoch
    assert used == len(ledger) and epochs_ended >= 10


@with_each_feed
@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_evaluation_is_every_row_once_with_fixed_masks(mixed, hosts, split, feed):
    objective = MaskedLm(length=8, max_predictions=2, rows="documents")
    data = Data(objective=objective, batch_size=8, feed=feed)
    stream, other = (Stream(mixed, data, split=split, seed=seed) for seed in (1, 2))
    parts = [
        list(stream.iterate_evaluation_batches(h * 8 // hosts, (h + 1) * 8 // hosts))
        for h in range(hosts)
    ]
    whole = [join_parts(part) for part in zip(*parts)]
    assert len(whole) == stream.num_evaluation_batches
    assert all(are_equal(batch, other.build_evaluation_batch(i)) for i, batch in enumerate(whole))
    tokens = mixed.open_split(split).tokens
    expected = Counter(tuple(tokens[i : i + 6].tolist()) for i in range(0, len(tokens), 6))
    seen = Counter()
    for batch in whole:
        batch_spec.check_batch(batch, data.objective, 8)
        real = batch["label_weights"].any(axis=1)
        seen.update(row[1:7] for row, keep in zip(unmask_tokens(batch), real) if keep)
        assert (
            batch["attention_mask"].any(axis=1).all()
        )  # padding rows too: attention without keys would give NaN
    assert seen == expected and stream.num_rows % 8 != 0


@pytest.mark.parametrize("name", ["pairs", "spans", "orders"])
def test_evaluation_fills_the_last_batch_with_rows_that_do_not_count(make, name):
    # Of two sizes without a common factor one leaves rows over.
    sizes = [size for size in (7, 8) if make(name, batch_size=size).num_rows % size]
    stream = make(name, batch_size=sizes[0])
    filling = stream.num_evaluation_batches * sizes[0] - stream.num_rows
    last = stream.build_evaluation_batch(stream.num_evaluation_batches - 1)
    assert 0 < filling < sizes[0]
    for key in last.keys() & {"label_weights", "next_sentence_weights", "sentence_order_weights"}:
        rows = last[key].reshape(sizes[0], -1).any(axis=1)
        assert rows.tolist() == [True] * (sizes[0] - filling) + [False] * filling


@with_each_feed
@pytest.mark.parametrize(
    ("step", "before", "after"), [(5, 8, 3), (7, 3, 8), (1, 4, 4), (900, 8, 16)]
)
def test_another_batch_size_goes_on_at_the_next_row(mixed, step, before, after, feed):
    """Both streams together read the rows of a run with batches of one row, none twice and none
    skipped.
    """
    objective = MaskedLm(length=8, max_predictions=2, rows="documents")

    def make_stream(size):
        return Stream(mixed, Data(objective=objective, batch_size=size, feed=feed), seed=4)

    first, then, single = make_stream(before), make_stream(after), make_stream(1)
    then.start_at_row(step, first.locate_rows(step))
    assert (
        then.locate_rows(step) == step * before
        and then.locate_rows(step + 2) == step * before + 2 * after
    )
    at = step * before - before  # of the last batch before the change
    rows = join_parts(
        [first.build_batch(step - 1), then.build_batch(step), then.build_batch(step + 1)]
    )
    alone = join_parts([single.build_batch(at + i) for i in range(before + 2 * after)])
    assert are_equal(rows, alone)
    ahead = then.iterate_batches(step, 1, after)
    assert are_equal(next(ahead), {key: value[1:] for key, value in then.build_batch(step).items()})
    if before != after:
        assert not are_equal(make_stream(after).build_batch(step), then.build_batch(step))


def test_rates_come_from_the_store_or_from_the_run(mixed):
    data = Data(
        objective=MaskedLm(length=8, max_predictions=2, rows="documents"),
        batch_size=10,
        rates=(0.0, 1.0, 3.0),
    )
    source, _, _ = Stream(mixed, data).load_rows(np.arange(4000))
    assert np.bincount(source, minlength=3).tolist() == pytest.approx([0, 1000, 3000], abs=2)
    for rates, message in (
        ((1.0,), "data.rates has 1 values, but the store has 3 sources: large, small, middle"),
        ((0.0, 0.0, 0.0), "rates are 0 or more, and one of them above 0"),
        ((1.0, -1.0, 1.0), "rates are 0 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(mixed, Data(objective=data.objective, rates=rates)).build_batch(0)


@with_each_feed
def test_a_source_without_a_row_is_refused_in_training_but_not_in_evaluation(mixed, feed):
    objective = MaskedLm(length=8, max_predictions=2, rows="documents")
    stream = Stream(mixed, Data(objective=objective, feed=feed), split="heldout")
    with pytest.raises(ValueError, match="the source 'small' holds less text than one row"):
        stream.iterate_batches()
    assert stream.build_evaluation_batch(0)["token_ids"].shape == (32, 8)


def test_settings_that_make_no_sense(store, vocabulary, tmp_path):
    good = Data(objective=OBJECTIVES["pieces"])
    for data, seed, message in (
        (Data(objective=good.objective, batch_size=0), 0, "data.batch_size=0"),
        (Data(objective=good.objective, threads=0), 0, "data.threads=0"),
        (Data(objective=good.objective, prefetch=-1), 0, "data.prefetch=-1"),
        (good, -1, "seed -1"),
        (Data(objective=SpanCorruption()), 0, "span_corruption needs the special token"),
        (Data(objective=MaskedLm(8000, 2000, rows="windows")), 0, "the train split .* fewer than the 7998 of"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Stream(store, data, seed=seed)
    stream = Stream(store, good)
    threaded = Stream(store, dataclasses.replace(good, feed="threads"))
    for call in (
        lambda: stream.build_batch(-1),
        lambda: stream.make_dataset(-1),
        lambda: stream.iterate_batches(-1),
        lambda: threaded.iterate_batches(-1),
    ):
        with pytest.raises(ValueError, match="step -1: steps are counted from 0"):
            call()
    for lo, hi in ((0, 33), (5, 5), (-1, 4)):
        with pytest.raises(ValueError, match=f"rows {lo} to {hi} of a batch of 32"):
            stream.build_batch(0, lo, hi)
    empty = write_store(tmp_path / "empty", vocabulary, [[[7, 8]]])
    with pytest.raises(ValueError, match="the heldout split of .* is empty"):
        Stream(empty, good, split="heldout")


@with_each_feed
def test_an_id_beyond_the_vocabulary_is_raised_as_it_is(store, vocabulary, tmp_path, feed):
    damaged = write_store(tmp_path / "damaged", vocabulary, [[[7] * 200]])
    with open(damaged.folder / "train" / "tokens.bin", "r+b") as file:
        file.seek(100)
        file.write(np.uint16(vocabulary.size).tobytes())
    stream = Stream(damaged, Data(objective=OBJECTIVES["pieces"], batch_size=10, feed=feed))
    with pytest.raises(
        ValueError, match=f"the id {vocabulary.size}, but its vocabulary has {vocabulary.size} ids"
    ):
        stream.build_batch(0)
    with pytest.raises(ValueError, match="run prepare again"):
        next(stream.iterate_batches())


@with_each_feed
def test_batches_made_together_end_at_the_damaged_one(store, vocabulary, tmp_path, feed):
    damaged = write_store(tmp_path / "damaged", vocabulary, [[[7] * 4000]])
    with open(damaged.folder / "train" / "tokens.bin", "r+b") as file:
        file.seek(2000)
        file.write(np.uint16(vocabulary.size).tobytes())
    data = Data(objective=OBJECTIVES["pieces"], batch_size=10, feed=feed)
    stream, made = Stream(damaged, data), []
    build = stream.build
    stream.build = lambda row_B, key_B: made.append(len(row_B)) or build(row_B, key_B)
    read = []

    def read_all():
        with contextlib.closing(stream.iterate_batches()) as source:
            for batch in source:
                read.append(batch)

    with pytest.raises(ValueError, match="run prepare again"):
        read_all()
    assert all(are_equal(batch, stream.build_batch(step)) for step, batch in enumerate(read))
    with pytest.raises(ValueError, match="run prepare again"):
        stream.build_batch(len(read))
    # The batches before the error and the batches of its group were tried.
    assert len(read) > 1 and 10 * MAX_BATCHES in made


class OddRowError(LookupError):
    """An error type that TensorFlow does not know."""


READS = {  # {name: a way to read a stream's batches}
    "batches": lambda stream: stream.iterate_batches(),
    "evaluation_batches": lambda stream: stream.iterate_evaluation_batches(),
    "dataset": lambda stream: read_elements(stream.make_dataset()),
    "mapped": lambda stream: read_elements(
        stream.make_dataset().map(lambda batch: batch).batch(2).prefetch(1)
    ),
}
WAYS = [
    *(pytest.param("tfdata", how, marks=needs_tensorflow) for how in READS),
    *(("threads", how) for how in ("batches", "evaluation_batches")),
]


@pytest.mark.parametrize(("feed", "how"), WAYS)
def test_an_exception_in_a_row_is_raised_as_it_was(make, feed, how):
    """The exception is raised unchanged in the reader: its type, message, cause and traceback."""
    stream = make("pieces", threads=2, feed=feed)
    build = stream.build

    def fail_on_row(row_B, key_B):
        if 7 in row_B:
            try:
                raise KeyError("cause")
            except KeyError as cause:
                raise OddRowError("row 7 is odd") from cause
        return build(row_B, key_B)

    stream.build = stream.build_plain = fail_on_row
    with pytest.raises(OddRowError, match="^row 7 is odd$") as caught:
        list(READS[how](stream))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "fail_on_row" in [entry.name for entry in caught.traceback]
    assert caught.value.__suppress_context__ and "tensorflow" not in str(caught.value)


@needs_tensorflow
def test_only_an_error_bypasses_the_dataset(make):
    """A dataset that renames a key yields elements with the new name."""
    stream = make("pieces")
    renamed = stream.make_dataset(3).map(lambda batch: {f"my_{key}": x for key, x in batch.items()})
    with contextlib.closing(read_elements(renamed.take(2))) as elements:
        for step, element in enumerate(elements, 3):
            assert are_equal(
                {key.removeprefix("my_"): x for key, x in element.items()}, stream.build_batch(step)
            )
    assert step == 4


@with_each_feed
def test_a_batch_that_breaks_the_batch_spec_is_raised(make, feed):
    stream = make("pieces", feed=feed)
    batch = stream.build_batch
    stream.build_batch = lambda *args: {**batch(*args), "label_weights": np.ones((8, 4))}
    with pytest.raises(
        ValueError, match=r"label_weights is float64\[8, 4\], the batch spec says float32\[8, 4\]"
    ):
        next(stream.iterate_batches())


def test_the_definition_needs_neither_tensorflow_nor_jax():
    code = "import sys, data.pipeline, data.store.reader; print({'tensorflow', 'jax'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"
