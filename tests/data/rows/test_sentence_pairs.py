"""Sentence pairs equal a slow reference's, which reads documents by sentences and truncates
pairs token by token.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from data.rows import hashing, sentence_chunks
from data.rows.sentence_pairs import SentencePairRows


def make_corpus(seed, documents=60, longest=40, sources=(1.0,)):
    """Return documents as lists of sentence lengths, and a split that holds them; token t of the
    split is t.
    """
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(1, longest, rng.integers(1, 12)).tolist() for _ in range(documents)]
    lengths[3], lengths[5], lengths[7] = [1], [longest * 3], [2]
    flat = [length for document in lengths for length in document]
    edges = np.cumsum([0, *(int(documents * share) for share in sources)])
    edges[-1] = documents
    split = SimpleNamespace(
        tokens=np.arange(sum(flat)),
        document_starts=np.concatenate([[0], np.cumsum([sum(document) for document in lengths])]),
        sentence_starts=np.concatenate([[0], np.cumsum(flat)]),
        sources=tuple(
            SimpleNamespace(name=str(i), documents=(a, b))
            for i, (a, b) in enumerate(itertools.pairwise(edges))
        ),
    )
    return lengths, split


def slow_pieces(document, most):
    """Return the token counts of the sentences of one document."""
    if len(document) == 1 and document[0] > 1:
        parts = max(-(-document[0] // most), 2)
        cuts = [document[0] * i // parts for i in range(parts + 1)]
        return [b - a for a, b in itertools.pairwise(cuts)]
    result = []
    for length in document:
        parts = -(-length // most)
        cuts = [length * i // parts for i in range(parts + 1)]
        result += [b - a for a, b in itertools.pairwise(cuts)]
    return result


def slow_chunks(sizes, width):
    """Return (first, last + 1) sentence of each chunk of one document."""
    result, first = [], 0
    while first < len(sizes):
        last, total = first, 0
        while last < len(sizes) and total + sizes[last] <= width:
            total += sizes[last]
            last += 1
        result.append((first, last))
        first = last
    if len(sizes) > 1 and result[-1][1] - result[-1][0] == 1:
        result[-1] = (len(sizes) - 2, len(sizes))
    return result


class Slow:
    """Return all sentences and chunks, and one pair at a time."""

    def __init__(self, documents, split, width):
        self.width = width
        self.documents = [slow_pieces(document, width // 2) for document in documents]
        self.starts = [int(start) for start in split.document_starts]
        self.rows = [
            (d, lo, hi) for d, p in enumerate(self.documents) for lo, hi in slow_chunks(p, width)
        ]
        self.sources = [source.documents for source in split.sources]

    def list_tokens(self, d, lo, hi):
        at = self.starts[d] + sum(self.documents[d][:lo])
        return list(range(at, at + sum(self.documents[d][lo:hi])))

    def make_pair(self, row, key, short, random_next):
        draws = [
            int(bits) >> 32
            for bits in hashing.draw_uint64(hashing.derive_keys(np.array([key]), hashing.PAIR), 6)[
                0
            ]
        ]

        def draw_below(i, n):
            return draws[i] * n >> 32

        d, lo, hi = self.rows[row]
        sizes = self.documents[d]
        target = (
            2 + draw_below(1, self.width - 1) if draws[0] < round(short * 2**32) else self.width
        )
        last, total = lo, 0
        while last < hi and (total < target or last < lo + 2):
            total += sizes[last]
            last += 1
        if last - lo >= 2:
            cut = lo + 1 + draw_below(2, last - lo - 1)
            other = draws[3] < round(random_next * 2**32)
        else:
            cut, other = lo + 1, True
        a, b = self.list_tokens(d, lo, cut), self.list_tokens(d, cut, last)
        if other:
            first, behind = next(source for source in self.sources if source[0] <= d < source[1])
            n = behind - first
            e = first + (d - first + 1 + draw_below(4, n - 1)) % n
            start = draw_below(5, len(self.documents[e]))
            b = []
            for piece in range(start, len(self.documents[e])):
                b += self.list_tokens(e, piece, piece + 1)
                if len(b) >= target - len(a):
                    break
        return *self.truncate_pair(a, b, key), other

    def truncate_pair(self, a, b, key):
        """Truncate as Devlin et al. do: a coin for each removed token."""
        a, b, total = list(a), list(b), len(a) + len(b)
        gone_a = gone_b = 0
        while total > self.width:
            if len(a) - gone_a > len(b) - gone_b:
                gone_a += 1
            else:
                gone_b += 1
            total -= 1
        for tokens, gone, use in ((a, gone_a, hashing.COINS_A), (b, gone_b, hashing.COINS_B)):
            words = hashing.draw_uint64(
                hashing.derive_keys(np.array([key]), use), -(-max(gone, 1) // 64)
            )[0]
            coins = "".join(
                f"{byte:08b}" for word in words for byte in int(word).to_bytes(8, "little")
            )
            for coin in coins[:gone]:
                tokens.pop(0 if coin == "1" else -1)
        return a, b


@pytest.mark.parametrize(
    ("width", "sources"), [(29, (1.0,)), (61, (0.5, 0.5)), (13, (0.3, 0.4, 0.3)), (200, (1.0,))]
)
def test_pairs_are_those_of_the_slow_reference(width, sources):
    documents, split = make_corpus(1, sources=sources)
    slow, table = Slow(documents, split, width), SentencePairRows(split, width)
    assert table.count == len(slow.rows)
    rows = np.repeat(np.arange(table.count), 3)
    keys = hashing.derive_keys(4, np.arange(len(rows)))
    (a_start, a), (b_start, b), other = table.draw_pairs(rows, keys, 0.3, 0.5)
    for i, row in enumerate(rows.tolist()):
        first, second, elsewhere = slow.make_pair(row, keys[i], 0.3, 0.5)
        assert list(range(a_start[i], a_start[i] + a[i])) == first
        assert list(range(b_start[i], b_start[i] + b[i])) == second
        assert other[i] == elsewhere


def test_promises():
    width = 45
    documents, split = make_corpus(2, documents=300, sources=(0.5, 0.5))
    table = SentencePairRows(split, width)
    rows = np.tile(np.arange(table.count), 20)
    (a_start, a), (b_start, b), other = table.draw_pairs(
        rows, hashing.derive_keys(1, np.arange(len(rows))), 0.1, 0.5
    )
    document = np.repeat(np.arange(len(documents)), np.diff(split.document_starts))
    assert (a >= 1).all() and (b >= 1).all() and (a + b <= width).all()
    home, away = document[a_start], document[b_start]
    assert (document[a_start + a - 1] == home).all() and (document[b_start + b - 1] == away).all()
    assert np.array_equal(away != home, other) and ((home < 150) == (away < 150)).all()
    assert (b_start == a_start + a)[~other].all()
    lonely = np.diff(split.document_starts)[home] == 1
    drawn = other[~lonely]
    assert other[lonely].all() and abs(drawn.mean() - 0.5) < 4 * 0.5 / np.sqrt(len(drawn))
    covered = np.zeros(
        len(document), bool
    )  # by the true pairs of 20 epochs: all text except the documents of one token
    for start, end in zip(a_start[~other], (b_start + b)[~other]):
        covered[start:end] = True
    assert np.array_equal(covered, np.diff(split.document_starts)[document] > 1)


def test_every_other_document_is_drawn_equally_often():
    split = SimpleNamespace(
        document_starts=np.arange(0, 60, 10),
        sentence_starts=np.arange(0, 55, 5),
        sources=(SimpleNamespace(name="a", documents=(0, 5)),),
    )
    _, (b_start, _), other = SentencePairRows(split, 12).draw_pairs(
        np.full(8000, 2), hashing.derive_keys(2, np.arange(8000)), 0.0, 1.0
    )
    counts = np.bincount(b_start // 5, minlength=10)
    assert other.all() and counts[4:6].tolist() == [0, 0]
    counts = np.delete(counts, [4, 5])
    assert ((counts - 1000) ** 2 / 1000).sum() < 24.3  # chi-square, 7 degrees, p = 0.001


def test_parallel_and_sequential_chunks_agree(monkeypatch):
    """Chunks are the same in parallel or one by one, in small or large blocks."""
    _, split = make_corpus(3, documents=100)
    expected = SentencePairRows(split, 33)
    for lockstep, block in ((0, 1 << 16), (1000, 3), (1000, 1 << 16), (50, 2)):
        monkeypatch.setattr(sentence_chunks, "MIN_LOCKSTEP", lockstep)
        monkeypatch.setattr(sentence_chunks, "PIECE_BLOCK", block)
        table = SentencePairRows(split, 33)
        assert np.array_equal(table.chunk_C, expected.chunk_C)
        assert np.array_equal(table.first_chunk_D, expected.first_chunk_D)


def test_one_document_is_refused():
    split = SimpleNamespace(
        document_starts=np.array([0, 0, 9, 9]),
        sentence_starts=np.array([0, 4, 9]),
        sources=(SimpleNamespace(name="a", documents=(0, 3)),),
    )
    with pytest.raises(ValueError, match="there is only 1 document"):
        SentencePairRows(split, 20)


def test_a_source_of_one_document_draws_from_the_others():
    split = SimpleNamespace(
        document_starts=np.array([0, 10, 20, 30]),
        sentence_starts=np.arange(0, 35, 5),
        sources=(
            SimpleNamespace(name="a", documents=(0, 2)),
            SimpleNamespace(name="b", documents=(2, 3)),
        ),
    )
    table = SentencePairRows(split, 12)
    _, (b_start, _), _ = table.draw_pairs(
        np.full(200, table.count - 1), hashing.derive_keys(2, np.arange(200)), 0.0, 1.0
    )
    assert set((b_start // 10).tolist()) == {0, 1}
