"""Rows of a caption and a picture: of one document, or with the picture of another one.

B rows   D documents   S sources
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data.rows import hashing
from data.rows.sentence_pairs import Segment
from data.rows.tables import find_source_edges
from data.store.split import Split

BOTH, WORDS, PICTURE = range(3)  # the part whose tokens are masked


class DrawnPairs(NamedTuple):
    """The draws of rows.

    words, picture: (first token, number of tokens) of the parts.
    other_B: bool, True where the picture belongs to another document.
    part_B: BOTH, or the only part that has masked tokens.
    rate_B: float64, the share of the masked tokens of that part, uniform; not used for BOTH.
    """

    words: Segment
    picture: Segment
    other_B: np.ndarray
    part_B: np.ndarray
    rate_B: np.ndarray


class CaptionedRows:
    """One row for each document of a split.

    starts_D3: offsets of the words, of the visual tokens, and of the end of each document.
    count: D, the number of rows.
    offsets: int64 [S + 1], number of each source's first row, and D.
    """

    def __init__(self, split: Split) -> None:
        """Compute the table. Raises ValueError unless all documents have two parts."""
        starts, edges_D = np.asarray(split.sentence_starts), np.asarray(split.document_starts)
        self.count = len(edges_D) - 1
        if len(starts) != 2 * self.count + 1 or not np.array_equal(starts[::2], edges_D):
            raise ValueError(
                "its documents are not captions with pictures: `prepare-captions FOLDER --output "
                "STORE` writes those"
            )
        if self.count < 2:
            raise ValueError("it has one picture, and half of the rows take another one: take more")
        self.starts_D3 = np.stack([starts[:-1:2], starts[1::2], starts[2::2]], axis=1)
        self.offsets = find_source_edges(split)

    @property
    def longest(self) -> int:
        """Tokens of the longest row without special tokens: of any caption with any picture."""
        return int(np.diff(self.starts_D3, axis=1).max(axis=0).sum())

    def draw_pairs(
        self, row_B: np.ndarray, key_B: np.ndarray, random_picture: float, one_sided: float
    ) -> DrawnPairs:
        """Draw the picture of each row and the part that is masked.

        Args:
          key_B: uint64 keys of the draws.
          random_picture: probability that a row with masks in both parts has another's picture.
          one_sided: probability that a row has masks in one part alone; it has its own picture.
        """
        bits_5B = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.PAIR), 5).T
        is_one_sided_B = hashing.bits_to_bools(bits_5B[0], one_sided)
        side_B = np.where(hashing.bits_to_bools(bits_5B[1], 0.5), WORDS, PICTURE)
        rate_B = (bits_5B[2] >> np.uint64(11)) * 2.0**-53
        other_B = hashing.bits_to_bools(bits_5B[3], random_picture) & ~is_one_sided_B
        step_B = 1 + hashing.bits_to_ints(bits_5B[4], self.count - 1)
        picture_B = np.where(other_B, (row_B + step_B) % self.count, row_B)
        words_B3, picture_B3 = self.starts_D3[row_B], self.starts_D3[picture_B]
        return DrawnPairs(
            (words_B3[:, 0], words_B3[:, 1] - words_B3[:, 0]),
            (picture_B3[:, 1], picture_B3[:, 2] - picture_B3[:, 1]),
            other_B,
            np.where(is_one_sided_B, side_B, BOTH),
            rate_B,
        )
