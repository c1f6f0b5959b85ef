"""Rows of pairs: as many consecutive pairs as fit into a source row and a target row.

As in `data/rows/full_sentences.py`, rows are fixed when the store is opened, so that row r is a
table look-up, and each pair is in one row. A pair that does not fit a row alone is skipped, and
counted: if it were cut, its sides would no longer have the same meaning.

B rows   N positions of a row   D documents of the store, each a pair   Q pairs that fit
R rows in all   S sources
"""

import bisect

import numpy as np

from data.rows.tables import find_source_edges
from data.store.split import Split


class ParallelRows:
    """Rows of at most `source_width` and `target_width` tokens, one </s> for each side included.

    start_Q2: first token of each side in the store.
    end_Q2: 0, then the sum of the lengths of each side up to each pair, </s> included.
    first_R: the first pair of each row, and the end.
    num_skipped_pairs: number of pairs that do not fit a row.
    """

    def __init__(self, split: Split, source_width: int, target_width: int) -> None:
        starts_D, edges = np.asarray(split.document_starts), np.asarray(split.sentence_starts)
        if len(edges) != 2 * len(starts_D) - 1 or not np.array_equal(edges[::2], starts_D):
            raise ValueError(
                "its documents are not pairs of a source and a target: "
                "`prepare --document pair` makes a store of pairs"
            )
        lengths_D2 = np.diff(edges).reshape(-1, 2) + 1
        fits_D = (lengths_D2 <= (source_width, target_width)).all(axis=1)
        self.num_skipped_pairs = int((~fits_D).sum())
        if not fits_D.any():
            shortest = (
                " and ".join(map(str, lengths_D2.min(axis=0))) if len(lengths_D2) else "no pairs"
            )
            raise ValueError(
                f"no pair fits into rows of {source_width} and {target_width} tokens; "
                f"the shortest sides are {shortest}"
            )
        self.start_Q2 = edges[:-1].reshape(-1, 2)[fits_D]
        self.end_Q2 = np.pad(np.cumsum(lengths_D2[fits_D], axis=0), ((1, 0), (0, 0)))
        edges_S = np.concatenate([[0], np.cumsum(fits_D)])[find_source_edges(split)]
        widths = (source_width, target_width)
        first_SR = [
            pack_pairs(self.end_Q2.T, low, high, widths)
            for low, high in zip(edges_S.tolist(), edges_S[1:].tolist())
        ]
        self.offsets = np.concatenate([[0], np.cumsum([len(first_R) for first_R in first_SR])])
        self.count = int(self.offsets[-1])
        self.first_R = np.append(np.concatenate(first_SR), edges_S[-1])

    def locate_side(
        self, which: int, row_B: np.ndarray, width: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where one side of each row is in the store.

        Args:
          which: 0 for the source, 1 for the target.

        Returns:
          index_BN: int64 [B, N], index of each token in the store; without meaning at the end of a
            side and on padding.
          ends_BN: bool [B, N], True at the end of a side.
          segments_BN: int32 [B, N], number of the pair in its row, from 1; 0 on padding.
        """
        end_Q, first_B, stop_B = self.end_Q2[:, which], self.first_R[row_B], self.first_R[row_B + 1]
        position_BN = end_Q[first_B][:, None] + np.arange(width)
        pair_BN = np.searchsorted(end_Q, position_BN, side="right")
        pair_BN = np.minimum(pair_BN, stop_B[:, None]) - 1
        used_BN = position_BN < end_Q[stop_B][:, None]
        index_BN = self.start_Q2[pair_BN, which] + position_BN - end_Q[pair_BN]
        ends_BN = used_BN & (position_BN + 1 == end_Q[pair_BN + 1])
        segments_BN = np.where(used_BN, pair_BN - first_B[:, None] + 1, 0).astype(np.int32)
        return index_BN, ends_BN, segments_BN


def pack_pairs(ends_2Q: np.ndarray, pair: int, stop: int, widths: tuple[int, int]) -> np.ndarray:
    """Return the first pair of each row of the pairs [pair, stop): int64 [R].

    ends_2Q: the transpose of `ParallelRows.end_Q2`.
    """
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
