"""Rows of pairs: as many consecutive pairs as fit, a source row and a target row beside each other.

As in `data/rows/full_sentences.py`, rows are fixed when the store is opened, so that row r is a table look-up, and each pair is in one row. A
pair that does not fit a row alone is left out, and counted: cut, its sides would no longer say the same.

B rows   N positions of a row   D documents of the store, each a pair   Q pairs that fit   R rows in all
"""

import bisect

import numpy as np

from data.rows.tables import source_edges


class ParallelRows:
    """Rows of at most `source_width` and `target_width` tokens, one that ends it counted for each side of a pair."""

    def __init__(self, split, source_width, target_width):
        starts_D, edges = np.asarray(split.document_starts), np.asarray(split.sentence_starts)
        if len(edges) != 2 * len(starts_D) - 1 or not np.array_equal(edges[::2], starts_D):
            raise ValueError(
                "its documents are not pairs of a source and a target: `prepare --document pair` makes a store of pairs"
            )
        lengths_D2 = np.diff(edges).reshape(-1, 2) + 1
        fits_D = (lengths_D2 <= (source_width, target_width)).all(axis=1)
        self.left_out = int((~fits_D).sum())
        if not fits_D.any():
            longest = (
                " and ".join(map(str, lengths_D2.min(axis=0))) if len(lengths_D2) else "no pairs"
            )
            raise ValueError(
                f"no pair fits into rows of {source_width} and {target_width} tokens; the shortest sides are {longest}"
            )
        self.start_Q2 = edges[:-1].reshape(-1, 2)[fits_D]  # where each side begins in the store
        self.end_Q2 = np.pad(
            np.cumsum(lengths_D2[fits_D], axis=0), ((1, 0), (0, 0))
        )  # ... and in a row without end
        edges_S = np.concatenate([[0], np.cumsum(fits_D)])[source_edges(split)]
        sizes = (source_width, target_width)
        first_SR = [
            walk(self.end_Q2.T, low, high, sizes)
            for low, high in zip(edges_S.tolist(), edges_S[1:].tolist())
        ]
        self.offsets = np.concatenate([[0], np.cumsum([len(first_R) for first_R in first_SR])])
        self.count = int(self.offsets[-1])
        self.first_R = np.append(np.concatenate(first_SR), edges_S[-1])

    def side(self, which, row_B, width):
        """Of one side (0 source, 1 target) of rows: (index into the store, what is its pair's end, pair in the row), [B, N = width].

        int64, bool and int32; pairs count from 1, 0 is padding. The index means nothing at an end and on padding.
        """
        end_Q, first_B, stop_B = self.end_Q2[:, which], self.first_R[row_B], self.first_R[row_B + 1]
        at_BN = end_Q[first_B][:, None] + np.arange(width)
        pair_BN = np.minimum(np.searchsorted(end_Q, at_BN, side="right"), stop_B[:, None]) - 1
        used_BN = at_BN < end_Q[stop_B][:, None]
        index_BN = self.start_Q2[pair_BN, which] + at_BN - end_Q[pair_BN]
        ends_BN = used_BN & (at_BN + 1 == end_Q[pair_BN + 1])
        return (
            index_BN,
            ends_BN,
            np.where(used_BN, pair_BN - first_B[:, None] + 1, 0).astype(np.int32),
        )


def walk(ends_2Q, pair, stop, widths):
    """The first pair of each row of the pairs from `pair` up to `stop`: int64 [R]."""
    sides, firsts = [np.ascontiguousarray(end_Q).data for end_Q in ends_2Q], []
    while pair < stop:
        firsts.append(pair)
        high = min(pair + max(widths), stop) + 1
        pair = (
            min(
                bisect.bisect_right(end_Q, end_Q[pair] + width, pair, high)
                for end_Q, width in zip(sides, widths)
            )
            - 1
        )
    return np.array(firsts, np.int64)
