"""Full sentences, as many as fit into a row (Liu et al. 2019, section 4.2, FULL-SENTENCES).

A row continues into the next document, with a separator between the two. As in
`data/rows/sentence_pairs.py`, rows are fixed when the store is opened, so that row r is a table
look-up. No token is dropped, and none is in two rows: a row ends where the next sentence does not
fit. A sentence longer than a row is cut evenly, and its parts count as sentences.

B rows   N tokens of a row, without special tokens   D documents   S sources
Q pieces: sentences, or parts of long ones   R rows in all
"""

import bisect

import numpy as np

from data.rows.sentence_chunks import count_parts, divide_sentences
from data.rows.tables import find_source_edges, mark_separators
from data.store.split import Split


class SentenceRows:
    """Rows of at most `width` tokens of a source's documents, separators included."""

    def __init__(self, split: Split, width: int) -> None:
        starts_D = np.asarray(split.document_starts)
        ends_D = starts_D[1:][np.diff(starts_D) > 0]  # as in data.rows.tables.WindowRows
        self.ends_D, self.width = ends_D + np.arange(1, len(ends_D) + 1), width
        pieces_Q = divide_sentences(*count_parts(np.asarray(split.sentence_starts), width))
        # Separators before each piece.
        before_Q = np.searchsorted(ends_D, pieces_Q[:-1], side="right")
        # Positions in the stream, which count the separators.
        begin_Q, end_Q = pieces_Q[:-1] + before_Q, pieces_Q[1:] + before_Q
        edges_S = np.searchsorted(pieces_Q, starts_D[find_source_edges(split)])
        first_SR = [
            pack_sentences(begin_Q, end_Q, low, high, width)
            for low, high in zip(edges_S.tolist(), edges_S[1:].tolist())
        ]
        self.offsets = np.concatenate([[0], np.cumsum([len(first_R) for first_R in first_SR])])
        self.count = int(self.offsets[-1])
        first_R = np.concatenate(first_SR)
        self.start_R = begin_Q[first_R]
        self.length_R = end_Q[np.append(first_R[1:], edges_S[-1]) - 1] - self.start_R

    def locate_spans(self, row_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (first position in the stream, number of tokens and separators): int64 [B]."""
        return self.start_R[row_B], self.length_R[row_B]

    def find_separators(self, start_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where the rows at these positions hold a separator, and each row's first token.

        Returns:
          bool [B, N], int64 [B]; see `data.rows.tables.mark_separators`.
        """
        return mark_separators(self.ends_D, self.width, start_B)


def pack_sentences(
    begin_Q: np.ndarray, end_Q: np.ndarray, piece: int, stop: int, width: int
) -> np.ndarray:
    """Return the first piece of each row of the pieces [piece, stop): int64 [R].

    A piece has at least one token.
    """
    begins, ends, firsts = begin_Q.data, end_Q.data, []
    while piece < stop:
        firsts.append(piece)
        piece = bisect.bisect_right(ends, begins[piece] + width, piece, min(piece + width, stop))
    return np.array(firsts, np.int64)
