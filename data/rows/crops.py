"""One row a document: a window at random of a long document, and a short document whole.

ESM-2 (Lin et al. 2023) reads a protein that is longer than its rows by a crop, another one in each
epoch. The key of a row draws the start, so a resumed run reads the crops that it would have read.

B rows   R rows of the table   D documents
"""

import numpy as np

from data.rows import hashing
from data.rows.tables import find_source_edges
from data.store.split import Split


class CropRows:
    """Rows of at most `width` tokens, one of each document that has any.

    first_R, length_R: the first token, and the number of tokens, of each row's document.
    """

    def __init__(self, split: Split, width: int) -> None:
        starts_D, self.width = np.asarray(split.document_starts), width
        document_R = np.flatnonzero(np.diff(starts_D))
        self.first_R = starts_D[document_R]
        self.length_R = starts_D[document_R + 1] - self.first_R
        self.count = len(document_R)
        self.offsets = np.searchsorted(document_R, find_source_edges(split))

    def locate_spans(self, row_B: np.ndarray, key_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (first token, number of tokens) of each row: int64 [B] each.

        Every window of a document is equally likely.
        """
        length_B = self.length_R[row_B]
        room_B = np.maximum(length_B - self.width, 0)
        bits_B = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.CROP), 1)[:, 0]
        start_B = self.first_R[row_B] + hashing.bits_to_ints(bits_B, room_B + 1)
        return start_B, length_B - room_B
