"""Rows of full sentences equal a slow reference's."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from data.rows.full_sentences import SentenceRows

SOURCES = {"a": (0, 4), "none": (4, 4), "b": (4, 12)}
LENGTHS = [7, 0, 1, 12, 5, 0, 0, 3, 10, 20, 4, 0]
SENTENCES = [3, 4, 1, 2, 2, 8, 5, 1, 2, 1, 1, 8, 19, 1, 2, 2]


def split_of(lengths, sources, sentences):
    """Return a split in memory: documents and sentences of these lengths, tokens 0, 1, 2, ...,
    sources {name: (lo, hi)}.
    """
    return SimpleNamespace(
        document_starts=np.concatenate([[0], np.cumsum(lengths)]),
        sentence_starts=np.concatenate([[0], np.cumsum(sentences)]),
        sources=tuple(
            SimpleNamespace(name=name, documents=documents) for name, documents in sources.items()
        ),
    )


def slow_rows(split, width):
    """Return the rows as the paper describes them, "|" between documents: as many sentences as fit."""
    rows = []
    for source in split.sources:
        row = []
        for d in range(*source.documents):
            start, end = split.document_starts[d : d + 2].tolist()
            cuts = [start, *(i for i in split.sentence_starts.tolist() if start < i < end), end]
            behind = False  # an earlier sentence of this document
            for a, b in itertools.pairwise(cuts):
                parts = -(-(b - a) // width)
                for part in range(parts):
                    piece = list(
                        range(a + (b - a) * part // parts, a + (b - a) * (part + 1) // parts)
                    )
                    between = ["|"] if row and not behind else []
                    if len(row) + len(between) + len(piece) > width:
                        rows, row, between = [*rows, row], [], []
                    row, behind = row + between + piece, True
        rows += [row] if row else []
    return rows


def read_rows(table, row_B):
    start_B, length_B = table.locate_spans(row_B)
    separator_BN, token_B = table.find_separators(start_B)
    token_BN = token_B[:, None] + np.arange(table.width) - np.cumsum(separator_BN, axis=1)
    both = zip(separator_BN.tolist(), token_BN.tolist(), length_B.tolist())
    return [
        ["|" if s else t for s, t in zip(separators, tokens)][:length]
        for separators, tokens, length in both
    ]


@pytest.mark.parametrize("width", [1, 2, 5, 8, 9, 21, 200])
def test_rows_are_full_sentences(width):
    split = split_of(LENGTHS, SOURCES, SENTENCES)
    table, expected = SentenceRows(split, width), slow_rows(split, width)
    assert read_rows(table, np.arange(table.count)) == expected
    assert read_rows(table, np.arange(table.count)[::-1]) == expected[::-1]
    first = split.document_starts[4]
    ahead = sum(row[0] < first for row in expected)
    assert table.offsets.tolist() == [0, ahead, ahead, len(expected)]


@pytest.mark.parametrize("seed", range(5))
def test_random_sentences(seed):
    rng = np.random.default_rng(seed)
    sentences = rng.integers(0, 12, 300)  # some are empty
    borders = np.sort(rng.choice(np.arange(1, 300), 39, replace=False))
    lengths = [part.sum() for part in np.split(sentences, borders)]
    split = split_of(lengths, {"a": (0, 13), "b": (13, 40)}, sentences)
    table = SentenceRows(split, 10 + 7 * seed)
    assert read_rows(table, np.arange(table.count)) == slow_rows(split, 10 + 7 * seed)
