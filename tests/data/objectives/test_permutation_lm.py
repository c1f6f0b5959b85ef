"""Rows of permutation_lm: which tokens are predicted, their orders, their text, and its checks."""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.inspection.checks import InspectedBatch
from data.objectives import PermutationLm
from data.objectives.permutation_lm import Permuter
from data.pipeline import Stream
from data.rows.frames import move_cls_first, move_cls_last

KINDS = ("documents", "windows", "sentences", "pairs")


def make_stream(store, batch_size=8, **settings):
    objective = PermutationLm(**{"length": 32, "partial": 3, **settings})
    return Stream(store, Data(objective=objective, batch_size=batch_size))


@pytest.fixture(scope="module")
def permuter(vocabulary):
    return Permuter(vocabulary, num_predictions=20, partial=6, max_span=5)


def draw_rows(permuter, vocabulary, lengths, seed=0):
    """Return (ids, valid, result) of rows of so many ordinary tokens, and one [SEP] after them."""
    lengths = np.asarray(lengths)
    ids = np.flatnonzero(~np.asarray(vocabulary.special))[: lengths.max() + 1]
    column = np.arange(lengths.max() + 1)
    tokens = np.where(column < lengths[:, None], np.resize(ids, len(column)), vocabulary.pad)
    tokens[np.arange(len(lengths)), lengths] = vocabulary.sep
    valid = column <= lengths[:, None]
    keys = np.random.default_rng(seed).integers(0, 2**63, len(lengths), dtype=np.uint64)
    return tokens.astype(np.int32), valid, permuter(tokens.astype(np.int32), valid, keys)


# ---- spans -----------------------------------------------------------------------


def test_one_token_in_k_is_predicted_in_spans_of_each_length(permuter, vocabulary):
    """Spans of n are drawn with weight 1 / n; the last one is cut to what remains of the number."""
    _, _, result = draw_rows(permuter, vocabulary, [120] * 4000)
    number_B = result["label_weights"].sum(axis=1)
    assert (number_B == 20).all()
    # Spans of one row that touch look like one, so only rows' first spans are counted.
    positions = result["masked_positions"]
    length_B = 1 + (np.diff(positions, axis=1) == 1).cumprod(axis=1).sum(axis=1)
    share = np.bincount(np.minimum(length_B, 6), minlength=7)[1:6] / len(length_B)
    expected = 1 / np.arange(1, 6) / (1 / np.arange(1, 6)).sum()
    np.testing.assert_allclose(share, expected, atol=0.03)


def test_all_places_are_predicted_equally_often(permuter, vocabulary):
    """But for the ends of a row, where contexts of several tokens do not fit."""
    _, _, result = draw_rows(permuter, vocabulary, [119] * 6000)
    count = np.bincount(result["masked_positions"][result["label_weights"] > 0], minlength=119)
    share = count[:119] / 6000
    assert abs(share.sum() - 19) < 1e-9
    assert share[30:90].min() > 0.13 and share[30:90].max() < 0.19
    assert share.min() > 0.01


def test_short_rows_keep_a_token_of_context(permuter, vocabulary):
    _, _, result = draw_rows(permuter, vocabulary, [0, 1, 2, 5, 6, 11, 12])
    assert result["label_weights"].sum(axis=1).tolist() == [0, 0, 1, 1, 1, 1, 2]


def test_predicted_and_special_tokens_have_all_ranks(permuter, vocabulary):
    tokens, _, result = draw_rows(permuter, vocabulary, [30, 60, 90], seed=3)
    for i, ranks in enumerate(result["permutation_ranks"]):
        predicted = result["masked_positions"][i, result["label_weights"][i] > 0]
        ordered = sorted({*predicted.tolist(), (30, 60, 90)[i]})
        assert np.flatnonzero(ranks).tolist() == ordered
        assert sorted(ranks[ordered].tolist()) == list(range(1, len(ordered) + 1))
        assert tokens[i, predicted].tolist() == result["labels"][i, : len(predicted)].tolist()


def test_all_orders_are_equally_likely(vocabulary):
    """Of two predicted tokens and a [SEP]: six orders."""
    permuter = Permuter(vocabulary, num_predictions=2, partial=2, max_span=1)
    _, _, result = draw_rows(permuter, vocabulary, [4] * 6000)
    ranks = result["permutation_ranks"]
    in_order = np.stack([row[row > 0] for row in ranks])
    _, counts = np.unique(in_order, axis=0, return_counts=True)
    assert len(counts) == 6
    np.testing.assert_allclose(counts / 6000, 1 / 6, atol=0.03)


# ---- rows ------------------------------------------------------------------------


@pytest.mark.parametrize("rows", KINDS)
def test_batches_hold_what_inspection_promises(store, rows):
    stream = make_stream(store, rows=rows)
    batch = stream.build_batch(0)
    batch_spec.check_batch(batch, stream.objective, 8, store.vocabulary)
    last_B = batch["attention_mask"].sum(axis=1) - 1
    row_B = np.arange(8)
    assert (batch["token_ids"][row_B, last_B] == store.vocabulary.cls).all()
    assert (batch["token_ids"][row_B, last_B - 1] == store.vocabulary.sep).all()
    report = inspect_batches(stream, batches=3)
    assert [check["name"] for check in report["checks"] if not check["passed"]] == []
    ranks = [one["rank"] for one in report["rows"][0]["masked"]]
    assert ranks == sorted(ranks) and len(ranks) > 1


def test_inspection_finds_what_is_wrong(store):
    stream = make_stream(store, rows="windows")
    objective = stream.objective
    batch = stream.build_batch(0)
    wrong = {
        "labels that are not the row's tokens": ("labels", lambda x: x[::-1]),
        "rows whose ranks are not an order of predicted and special tokens": (
            "permutation_ranks",
            lambda x: x * 2,
        ),
        "positions out of order": ("masked_positions", lambda x: x[:, ::-1]),
        "share of tokens predicted": ("label_weights", lambda x: x * 0),
    }
    keys = np.zeros(8, np.uint64)
    for name, (key, change) in wrong.items():
        seen = [InspectedBatch(batch | {key: change(batch[key])}, np.arange(8), keys)]
        checks = objective.measure_batches(stream, seen, store.vocabulary.pieces.index)
        assert name in [check.name for check in checks if not check.passed]


def test_the_move_of_cls_is_undone(store):
    rng = np.random.default_rng(0)
    valid = np.arange(9) < np.array([9, 6, 2])[:, None]
    rows = {
        "token_ids": np.where(valid, rng.integers(1, 50, valid.shape), 0).astype(np.int32),
        "token_type_ids": (valid & (np.arange(9) > 3)).astype(np.int32),
        "attention_mask": valid,
    }
    moved = move_cls_last(rows)
    assert moved["token_ids"][1, :6].tolist() == [
        *rows["token_ids"][1, 1:6].tolist(),
        rows["token_ids"][1, 0],
    ]
    assert moved["token_type_ids"][1].tolist() == [0, 0, 0, 1, 1, 2, 0, 0, 0]
    back = move_cls_first(moved)
    for key, value in rows.items():
        np.testing.assert_array_equal(back[key], value)


def test_rows_on_lanes_continue_each_other(store):
    stream = make_stream(store, rows="windows", order="lanes", batch_size=2)
    row_B = stream.load_rows(np.arange(4))[2]
    assert (row_B[2:] == row_B[:2] + 1).all()
    assert stream.build_batch(1)["is_continued"].all()
    assert not stream.build_batch(0)["is_continued"][0]  # the first row of its source


def test_evaluation_predicts_shared_tokens_once(store):
    """Of windows: the last row of a source is moved back to end with it."""
    stream = make_stream(store, rows="windows")
    table, objective = stream.table, stream.objective
    row_B = np.arange(table.count)
    keys = np.arange(table.count, dtype=np.uint64)
    batch = stream.build(row_B, keys)
    before = batch["label_weights"].copy()
    objective.drop_repeats(table, batch, row_B, keys)
    dropped = before != batch["label_weights"]
    own_BN = np.pad(table.mark_own_tokens(row_B), ((0, 0), (0, 2)), constant_values=True)
    shared = ~np.take_along_axis(own_BN, batch["masked_positions"], axis=1) & (before > 0)
    assert shared.any()
    np.testing.assert_array_equal(dropped, shared)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partial": 1}, "at most one token in 2 is predicted"),
        ({"max_span": 0}, "a span has at least 1"),
        ({"max_span": 10**9}, "a span has at least 1, and at most length="),
        ({"length": 6}, "at least 5 of text"),
        ({"random_next": 1.5}, "random_next=1.5; a share of rows"),
        ({"order": "lanes"}, "set data.objective.rows=windows"),
    ],
)
def test_wrong_settings_are_refused(store, settings, message):
    with pytest.raises(ValueError, match=message):
        make_stream(store, **settings)


def test_a_vocabulary_without_cls_is_refused(t5_store):
    with pytest.raises(ValueError, match="needs the special token"):
        make_stream(t5_store)


def test_rows_are_a_function_of_seed_and_step(store):
    one, other = make_stream(store), make_stream(store)
    for step in (0, 5):
        for key, value in one.build_batch(step).items():
            np.testing.assert_array_equal(value, other.build_batch(step)[key])
    other = Stream(store, one.data, seed=1)
    assert any(
        (other.build_batch(0)[key] != value).any() for key, value in one.build_batch(0).items()
    )
