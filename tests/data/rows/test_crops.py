"""Crops: every document once an epoch, long ones by a window at random, the same when resumed."""

import dataclasses

import numpy as np
import pytest

from data.composed import build_rows
from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.objectives import (
    Distillation,
    MaskedDiffusion,
    MaskedLm,
    PermutationLm,
    ReplacedToken,
)
from data.pipeline import Stream
from data.rows import hashing
from data.rows.crops import CropRows
from data.store.split import MixtureSource, Split
from tests.small_store import write_store

LENGTHS = (0, 3, 8, 9, 0, 20, 1, 50)
WIDTH, LENGTH = 8, 10
SOURCES = (MixtureSource("one", (0, 5), 0.5), MixtureSource("other", (5, 8), 0.5))
OBJECTIVES = (
    MaskedLm(length=LENGTH, max_predictions=3, rows="crops"),
    Distillation(length=LENGTH, max_predictions=3, rows="crops"),
    ReplacedToken(length=LENGTH, max_predictions=3, rows="crops"),
    MaskedDiffusion(length=LENGTH, rows="crops"),
    PermutationLm(length=LENGTH, rows="crops"),
)


def make_table():
    starts_D = np.concatenate([[0], np.cumsum(LENGTHS)])
    return CropRows(Split(np.arange(starts_D[-1]), starts_D, starts_D, SOURCES), WIDTH)


@pytest.fixture(scope="module")
def store(tmp_path_factory, vocabulary):
    """Return a store of documents, each of different tokens, so that a window shows its place."""
    rng = np.random.default_rng(0)
    lengths = [n for n in LENGTHS if n]
    documents = [[rng.permutation(np.arange(5, vocabulary.size))[:n].tolist()] for n in lengths]
    path = tmp_path_factory.mktemp("crops") / "store"
    return write_store(path, vocabulary, {"all": documents}, heldout={"all": documents})


def restore_texts(batch):
    """Return the tokens of each row before masking, without [CLS] and [SEP]."""
    tokens_BL = batch["token_ids"].copy()
    for row, places, labels, weights in zip(
        tokens_BL, batch["masked_positions"], batch["labels"], batch["label_weights"]
    ):
        row[places[weights > 0]] = labels[weights > 0]
    return [row[1 : n - 1].tolist() for row, n in zip(tokens_BL, batch["attention_mask"].sum(1))]


def test_a_row_is_a_document_that_has_tokens():
    table = make_table()
    assert table.count == 6 and table.offsets.tolist() == [0, 3, 6]
    start_B, length_B = table.locate_spans(np.arange(6), np.arange(6, dtype=np.uint64))
    assert length_B.tolist() == [3, 8, 8, 8, 1, 8]
    assert start_B[[0, 1, 4]].tolist() == [0, 3, 40]  # documents that fit are whole


def test_every_window_is_equally_likely():
    """The chi-square of 13 windows is below its quantile 1 - 1e-9."""
    table, number = make_table(), 26_000
    key_B = hashing.derive_keys(7, np.arange(number))
    start_B, _ = table.locate_spans(np.full(number, 3), key_B)
    assert start_B.min() == 20 and start_B.max() == 20 + 20 - WIDTH
    seen, expected = np.bincount(start_B - 20), number / 13
    assert len(seen) == 13 and ((seen - expected) ** 2 / expected).sum() < 66


def test_an_epoch_reads_each_document_once_and_the_next_another_crop(store):
    stream = Stream(store, Data(objective=OBJECTIVES[0], batch_size=6), seed=3)
    assert stream.num_rows == 6
    split, epochs = store.open_split("train"), []
    for step in range(4):
        row_B, _ = stream.draw_keys(stream.locate_rows(step) + np.arange(6))
        texts = dict(zip(row_B.tolist(), restore_texts(stream.build_batch(step)), strict=True))
        assert sorted(texts) == [*range(6)]
        epochs.append(texts)
    for row in range(6):
        first, end = split.document_starts[row : row + 2]
        document = split.tokens[first:end].tolist()
        windows = [document[i : i + WIDTH] for i in range(max(len(document) - WIDTH, 0) + 1)]
        assert all(texts[row] in windows for texts in epochs)
    assert len({tuple(texts[5]) for texts in epochs}) > 1  # of 43 windows
    again = Stream(store, Data(objective=OBJECTIVES[0], batch_size=6), seed=3).build_batch(3)
    resumed = stream.build_batch(3)
    assert all(np.array_equal(again[key], resumed[key]) for key in resumed)


def test_held_out_crops_are_always_the_same(store):
    """They depend neither on the seed nor on the batch size."""
    one, other = (
        Stream(store, Data(objective=OBJECTIVES[0], batch_size=size), split="heldout", seed=size)
        for size in (6, 2)
    )
    whole, parts = one.build_evaluation_batch(0), map(other.build_evaluation_batch, range(3))
    assert restore_texts(whole) == [text for part in parts for text in restore_texts(part)]
    again = one.build_evaluation_batch(0)
    assert all(np.array_equal(whole[key], again[key]) for key in whole)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: one.name)
def test_the_inspection_finds_each_row_in_its_document(store, objective):
    stream = Stream(store, Data(objective=objective, batch_size=6), seed=3)
    report = inspect_batches(stream, 0, rows=1, batches=40)
    assert [check for check in report["checks"] if not check["passed"]] == []


def test_the_inspection_sees_a_row_of_another_place(store, monkeypatch):
    stream = Stream(store, Data(objective=OBJECTIVES[0], batch_size=6), seed=3)
    locate = CropRows.locate_spans

    def shift(table, row_B, key_B):
        start_B, length_B = locate(table, row_B, key_B)
        return start_B + 1, length_B

    build = stream.build_batch(0)
    monkeypatch.setattr(CropRows, "locate_spans", shift)
    monkeypatch.setattr(
        stream, "build_batch", lambda step, lo=0, hi=6: {k: v[lo:hi] for k, v in build.items()}
    )
    failed = [c["name"] for c in inspect_batches(stream, 0, batches=1)["checks"] if not c["passed"]]
    assert "rows whose text is not the store's" in failed


def test_rows_on_lanes_are_refused(store):
    objective = dataclasses.replace(OBJECTIVES[-1], order="lanes")
    with pytest.raises(
        ValueError, match="order=lanes with rows=crops.*set data.objective.rows=windows"
    ):
        Stream(store, Data(objective=objective, batch_size=2))


def test_a_users_text_of_any_length_is_a_row(store):
    """Of a text that is longer than the row, the key draws a window."""
    stream = Stream(store, Data(objective=OBJECTIVES[0], batch_size=2))
    tokens, starts = np.arange(5, 45).astype(np.uint16), np.array([0, 30, 40])
    found = restore_texts(build_rows(tokens, starts, stream, np.array([1, 2], np.uint64)))
    assert [len(text) for text in found] == [WIDTH, WIDTH]
    assert all(np.diff(text).tolist() == [1] * (WIDTH - 1) for text in found)
    assert 5 <= found[0][0] <= 27 and 35 <= found[1][0] <= 37
