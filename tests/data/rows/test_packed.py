"""Packed rows equal slow references': every text is in one row per epoch, rows do not
overflow, and padding is rare.
"""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.objectives import Distillation, MaskedLm, ReplacedToken
from data.pipeline import Stream
from data.rows.packed import PackedRows, find_recipes
from data.rows.tables import DocumentRows

LENGTHS = [7, 0, 1, 12, 5, 0, 0, 3, 10, 20, 4, 0]


def split_of(lengths, sources=None):
    """Return a split in memory: documents of these lengths, sources {name: (lo, hi)}."""
    sources = sources or {"all": (0, len(lengths))}
    return SimpleNamespace(
        document_starts=np.concatenate([[0], np.cumsum(lengths)]),
        sources=tuple(
            SimpleNamespace(name=name, documents=documents) for name, documents in sources.items()
        ),
    )


def slow_recipes(sizes, width):
    """Return the lengths of each row by worst-fit decreasing: longest text first, into the row
    with the most room.
    """
    rows = []
    for size in sorted(sizes, reverse=True):
        shortest = min(rows, key=sum, default=None)
        if shortest is None or sum(shortest) + size > width:
            rows.append([size])
        else:
            shortest.append(size)
    return Counter(tuple(row) for row in rows)


@pytest.mark.parametrize("seed", range(6))
def test_recipes_are_those_of_the_walk_piece_by_piece(seed):
    rng = np.random.default_rng(seed)
    width = 8 + 9 * seed
    sizes = np.minimum(rng.geometric(1 / (3 + 2 * seed), 400) + 2, width)
    made = find_recipes(np.bincount(sizes, minlength=width + 1).tolist(), width)
    assert sorted(n for rows, parts in made for n in parts * rows) == sorted(sizes)
    assert max(sum(parts) for _, parts in made) <= width and min(rows for rows, _ in made) > 0
    # Ties between rows of one length may be broken differently: the lengths of the rows, and so
    # their number, are the same.
    expected = Counter(sum(parts) for parts in slow_recipes(sizes.tolist(), width).elements())
    assert Counter(sum(parts) for rows, parts in made for _ in range(rows)) == expected


@pytest.mark.parametrize(("mean", "width"), [(8, 128), (30, 128), (200, 128), (60, 512)])
def test_geometric_lengths_leave_little_padding(mean, width):
    lengths = np.random.default_rng(0).geometric(1 / mean, 20_000)
    table = PackedRows(split_of(lengths), width)
    row_P, _, length_P, at_P = table.locate_segments(np.arange(table.count))
    used = np.bincount(row_P, length_P + 2)
    assert len(used) == table.count and used.max() <= width
    assert used.sum() / (table.count * width) > 0.95
    assert (at_P + length_P + 2 <= width).all()


@pytest.mark.parametrize("width", [3, 5, 7, 12, 30])
def test_every_piece_is_in_one_row(width):
    split = split_of(LENGTHS, {"a": (0, 4), "none": (4, 4), "b": (4, 12)})
    table, pieces = PackedRows(split, width), DocumentRows(split, width - 2)
    for source in range(3):
        low, high = table.offsets[source : source + 2]
        row_P, start_P, length_P, at_P = table.locate_segments(np.arange(low, high))
        expected = pieces.locate_spans(np.arange(*pieces.offsets[source : source + 2]))
        assert sorted(zip(start_P.tolist(), length_P.tolist())) == list(
            zip(*(x.tolist() for x in expected))
        )
        for row in range(high - low):
            mine = row_P == row
            assert at_P[mine].tolist() == [0, *np.cumsum(length_P[mine] + 2)[:-1]]
    # Rows are the same in any order and one by one.
    backwards = table.locate_segments(np.arange(table.count)[::-1])
    singly = [table.locate_segments(np.array([row])) for row in range(table.count)[::-1]]
    for whole, parts in zip(backwards[1:], list(zip(*singly))[1:]):
        assert whole.tolist() == np.concatenate(parts).tolist()


def test_pieces_of_a_store_of_more_than_four_billion_tokens():
    near, far = split_of(LENGTHS), split_of(LENGTHS)
    far.document_starts = far.document_starts + 2**32
    rows = np.arange(PackedRows(near, 12).count)
    (*near_rows, _), (*far_rows, _) = (
        PackedRows(near, 12).locate_segments(rows),
        PackedRows(far, 12).locate_segments(rows),
    )
    near_rows[1] += 2**32
    assert [x.tolist() for x in far_rows] == [x.tolist() for x in near_rows]


def pieces_of(batch, vocabulary):
    """Return the texts of each row, as tuples of ids, with the original tokens instead of the
    masks.
    """
    tokens = batch["token_ids"].copy()
    for i, j in zip(*np.nonzero(batch["label_weights"])):
        tokens[i, batch["masked_positions"][i, j]] = batch["labels"][i, j]
    rows = []
    for row, numbers in zip(tokens, batch["segment_ids"]):
        framed = [row[numbers == k].tolist() for k in range(1, numbers.max() + 1)]
        assert all((piece[0], piece[-1]) == (vocabulary.cls, vocabulary.sep) for piece in framed)
        assert [i for piece in framed for i in piece] == row[numbers > 0].tolist() and (
            row[numbers == 0] == vocabulary.pad
        ).all()
        rows.append([tuple(piece[1:-1]) for piece in framed])
    return rows


@pytest.mark.parametrize("hosts", [1, 2])
def test_an_epoch_is_every_piece_once_through_seeks_and_hosts(store, documents, vocabulary, hosts):
    objective = MaskedLm(length=32, max_predictions=5, rows="packed")
    size, rows = 8 // hosts, []
    steps = -(-Stream(store, Data(objective=objective, batch_size=8), seed=5).num_rows // 8)
    for begin, end in ((0, 3), (3, steps)):  # a stop, and a seek to resume
        stream = Stream(store, Data(objective=objective, batch_size=8), seed=5)
        for step in range(begin, end):
            parts = [
                stream.build_batch(step, host * size, (host + 1) * size) for host in range(hosts)
            ]
            for part in parts:
                batch_spec.check_batch(part, objective, size)
                rows += pieces_of(part, vocabulary)
    flat = [[i for sentence in document for i in sentence] for document in documents[:36]]
    expected = Counter(
        tuple(document[i : i + 30]) for document in flat for i in range(0, len(document), 30)
    )
    assert Counter(piece for row in rows[: stream.num_rows] for piece in row) == expected
    assert stream.num_rows < sum(expected.values())
    held = Stream(store, Data(objective=objective, batch_size=8), split="heldout")
    seen = Counter()
    for i in range(held.num_evaluation_batches):
        batch = held.build_evaluation_batch(i)
        counted = batch["label_weights"].any(axis=1)
        seen.update(
            piece
            for row, counts in zip(pieces_of(batch, vocabulary), counted)
            if counts
            for piece in row
        )
    flat = [[i for sentence in document for i in sentence] for document in documents[36:]]
    assert seen == Counter(
        tuple(document[i : i + 30]) for document in flat for i in range(0, len(document), 30)
    )


@pytest.mark.parametrize("kind", [MaskedLm, ReplacedToken])
def test_what_is_masked_are_words_in_their_share(store, vocabulary, kind):
    objective = kind(length=64, max_predictions=10, rows="packed")
    stream = Stream(store, Data(objective=objective, batch_size=64), seed=1)
    for step in range(20):
        batch = stream.build_batch(step)
        used = batch["label_weights"] > 0
        ordinary_B = batch["attention_mask"].sum(axis=1) - 2 * batch["segment_ids"].max(axis=1)
        assert not vocabulary.special[batch["labels"][used]].any()
        assert (
            np.take_along_axis(batch["segment_ids"], batch["masked_positions"], axis=1)[used] > 0
        ).all()
        np.testing.assert_array_equal(used.sum(axis=1), np.maximum(np.rint(0.15 * ordinary_B), 1))


@pytest.mark.parametrize("kind", [MaskedLm, Distillation, ReplacedToken])
def test_short_documents_share_rows_by_default(store, kind):
    def measure_share(**how):
        objective = kind(length=100, max_predictions=15, **how)
        return (
            Stream(store, Data(objective=objective, batch_size=64))
            .build_batch(0)["attention_mask"]
            .mean()
        )

    assert measure_share() > 0.9 > 0.5 > measure_share(rows="documents")


def merge_segments(batch, stream):
    batch["segment_ids"][batch["segment_ids"] > 1] -= 1


def swap_tokens(batch, stream):
    first = batch["token_ids"][:, 0].copy()
    batch["token_ids"][:, 0] = batch["token_ids"][:, 1]
    batch["token_ids"][:, 1] = first


def other_text(batch, stream):
    batch["token_ids"][:, 2] += 1


@pytest.mark.parametrize(
    ("tamper", "promise"),
    [
        (merge_segments, "rows whose pieces are not 1 1 1 2 2 ... 0 0"),
        (swap_tokens, "pieces that are not framed by [CLS] and [SEP]"),
        (other_text, "pieces whose text is not the store's"),
    ],
)
def test_inspection_names_the_promise_that_is_broken(store, tamper, promise):
    stream = Stream(store, Data(objective=MaskedLm(48, 7, rows="packed"), batch_size=16), seed=3)
    report = inspect_batches(stream, batches=3)
    share = next(
        check
        for check in report["checks"]
        if check["name"] == "share of the rows that is not padding"
    )
    assert report["passed"] and 0.8 < float(share["seen"]) <= 1
    build = stream.build

    def build_tampered(row_B, key_B):
        batch = build(row_B, key_B)
        tamper(batch, stream)
        return batch

    stream.build = build_tampered
    assert promise in [
        check["name"]
        for check in inspect_batches(stream, batches=3)["checks"]
        if not check["passed"]
    ]
