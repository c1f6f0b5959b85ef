"""Row tables equal slow references': no token is dropped, and no row crosses a boundary
that it must not.
"""

from bisect import bisect_right
from types import SimpleNamespace

import numpy as np
import pytest

from data.rows import tables
from data.rows.tables import DocumentRows, TokenReader, WindowRows


def split_of(lengths, sources=None, sentences=None):
    """Return a split in memory: documents of these lengths, tokens 0, 1, 2, ..., sources {name:
    (lo, hi)}.
    """
    starts = np.concatenate([[0], np.cumsum(lengths)])
    sources = sources or {"all": (0, len(lengths))}
    return SimpleNamespace(
        tokens=np.arange(starts[-1], dtype=np.uint16),
        document_starts=starts,
        sentence_starts=np.concatenate([[0], np.cumsum(sentences)])
        if sentences is not None
        else starts,
        sources=tuple(
            SimpleNamespace(name=name, documents=docs, rate=1.0) for name, docs in sources.items()
        ),
    )


LENGTHS = [7, 0, 1, 12, 5, 0, 0, 3, 10, 20, 4, 0]


def test_document_rows():
    split = split_of(LENGTHS, {"a": (0, 4), "none": (4, 4), "b": (4, 12)})
    table = DocumentRows(split, 5)
    expected = []
    for start, end in zip(split.document_starts, split.document_starts[1:]):
        expected += [(at, min(5, end - at)) for at in range(start, end, 5)]
    start, length = table.locate_spans(np.arange(table.count))
    assert list(zip(start.tolist(), length.tolist())) == expected
    assert table.offsets.tolist() == [0, 6, 6, len(expected)]
    order = np.array([3, 0, len(expected) - 1])
    assert table.locate_spans(order)[0].tolist() == [expected[i][0] for i in order]


@pytest.mark.parametrize("separated", [False, True])
@pytest.mark.parametrize(
    ("width", "shared"), [(1, 0), (3, 0), (5, 0), (9, 0), (2, 1), (5, 1), (9, 3)]
)
def test_window_rows(width, shared, separated):
    split = split_of(LENGTHS, {"a": (0, 4), "none": (4, 4), "b": (4, 12)})
    table = WindowRows(split, width, separated, shared)
    streams = []  # of each source, "|" between its documents
    for lo, hi in [(0, 4), (4, 4), (4, 12)]:
        stream = []
        for d in range(lo, hi):
            document = list(range(split.document_starts[d], split.document_starts[d + 1]))
            stream += (["|"] if separated and stream and document else []) + document
        streams.append(stream)
    expected = []
    for stream in streams:
        at = list(range(0, max(len(stream) - shared, 0), width - shared))
        expected += [stream[min(i, len(stream) - width) :][:width] for i in at]
    got = read_rows(table, np.arange(table.count), separated)
    assert got == expected
    assert table.offsets.tolist() == [
        0,
        *np.cumsum([-(-max(len(stream) - shared, 0) // (width - shared)) for stream in streams]),
    ]
    backwards = np.arange(table.count)[::-1]
    assert read_rows(table, backwards, separated) == expected[::-1]


def read_rows(table, row_B, separated):
    start_B = table.locate_starts(row_B)
    if not separated:
        return (start_B[:, None] + np.arange(table.width)).tolist()
    separator_BN, token_B = table.find_separators(start_B)
    token_BN = token_B[:, None] + np.arange(table.width) - np.cumsum(separator_BN, axis=1)
    return [
        ["|" if s else t for s, t in zip(*row)]
        for row in zip(separator_BN.tolist(), token_BN.tolist())
    ]


@pytest.mark.parametrize(
    ("lengths", "short"), [([20, 3, 20], "b"), ([3, 20, 20], "a"), ([20, 20, 3], "c")]
)
def test_a_source_shorter_than_a_row_is_named_and_borrows(lengths, short):
    table = WindowRows(split_of(lengths, {"a": (0, 1), "b": (1, 2), "c": (2, 3)}), 10)
    assert table.short == [short] and np.diff(table.offsets).tolist() == [
        -(-length // 10) for length in lengths
    ]
    start = table.locate_starts(np.arange(table.count))
    assert start.min() == 0 and start.max() == 43 - 10
    assert {t for s in start.tolist() for t in range(s, s + 10)} == set(range(43))


def test_a_split_shorter_than_a_row_is_refused():
    with pytest.raises(ValueError, match="there are only 12 tokens, fewer than the 13 of one row"):
        WindowRows(split_of([7, 5]), 13)
    assert WindowRows(split_of([7, 5]), 13, separated=True).count == 1


@pytest.mark.parametrize("size", [9, tables.LONG_TABLE])
def test_places_are_found_in_tables_short_and_long(size):
    rng = np.random.default_rng(0)
    edges, places = np.cumsum(rng.integers(0, 3, size)), rng.integers(-2, 2 * size + 2, 500)
    assert tables.search_sorted(edges, places).tolist() == [
        bisect_right(edges, place) for place in places.tolist()
    ]


def test_reader_refuses_an_id_that_the_vocabulary_does_not_have():
    read = TokenReader(np.array([3, 9, 4], np.uint16), 10)
    assert read(np.array([[0, 1], [2, 7]])).tolist() == [[3, 9], [4, 4]]
    with pytest.raises(ValueError, match="holds the id 9, but its vocabulary has 9 ids"):
        TokenReader(read.tokens, 9)(np.array([1]))
    assert TokenReader(read.tokens, 9)(np.array([0])).tolist() == [3]
