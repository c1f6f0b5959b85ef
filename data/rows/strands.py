"""The other strand of rows of DNA: half of the training rows, by their keys, are complemented.

A row's texts are what is between [CLS], [SEP] and padding, which do not move; each text is reversed
on its own, and each id becomes its complement. Done twice, this gives the row back.

B rows   F rows that are reversed   L row length   P masked positions of a row   V ids
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from data.rows import hashing
from data.rows.complement import find_complements
from data.rows.tables import Batch
from data.source import RowSet
from data.vocabulary.base import Vocabulary

STRAND_KEY = 22  # purpose of a draw


class StrandReverser:
    """Replaces rows of ids by their reverse complement. The constructor does all look-ups."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Prepare to reverse rows. Raises ValueError for a vocabulary without complements."""
        self.ids_V = find_complements(vocabulary).ids_V
        self.frame_V = np.zeros(vocabulary.size, bool)
        frame = (vocabulary.cls, vocabulary.sep, vocabulary.pad)
        self.frame_V[[i for i in frame if i is not None]] = True

    def reverse_rows(self, tokens_BL: np.ndarray, key_B: np.ndarray) -> None:
        """Reverse half of the rows in place, by their keys."""
        rows_F = draw_reversed_rows(key_B)
        tokens_FL = tokens_BL[rows_F]
        tokens_BL[rows_F] = self.ids_V[
            np.take_along_axis(tokens_FL, self.mirror_columns(tokens_FL), axis=1)
        ]

    def mirror_columns(self, tokens_FL: np.ndarray) -> np.ndarray:
        """Return the column from which each position is read: int64 [F, L].

        Within a text that begins after column b and ends before column e, c is read from b + e - c.
        """
        frame_FL, column_L = self.frame_V[tokens_FL], np.arange(tokens_FL.shape[1])
        before_FL = np.maximum.accumulate(np.where(frame_FL, column_L, -1), axis=1)
        after_FL = np.where(frame_FL, column_L, len(column_L))[:, ::-1]
        after_FL = np.minimum.accumulate(after_FL, axis=1)[:, ::-1]
        return before_FL + after_FL - column_L

    def restore_batch(self, batch: Batch, row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        """Return a masked batch with the strand that the store has: `data.source.RowSet.restore`.

        Masked positions and labels move with their tokens.
        """
        rows_F = draw_reversed_rows(key_B)
        batch = batch | {
            key: batch[key].copy() for key in ("token_ids", "masked_positions", "labels")
        }
        column_FL = self.mirror_columns(batch["token_ids"][rows_F])
        self.reverse_rows(batch["token_ids"], key_B)
        positions_FP, labels_FP = batch["masked_positions"][rows_F], batch["labels"][rows_F]
        used_FP = batch["label_weights"][rows_F] > 0
        moved_FP = np.take_along_axis(column_FL, positions_FP, axis=1)
        order_FP = np.argsort(
            np.where(used_FP, moved_FP, column_FL.shape[1]), axis=1, kind="stable"
        )
        for key, new_FP, old_FP in (
            ("masked_positions", moved_FP, positions_FP),
            ("labels", self.ids_V[labels_FP], labels_FP),
        ):
            values_FP = np.where(used_FP, new_FP, old_FP)
            batch[key][rows_F] = np.take_along_axis(values_FP, order_FP, axis=1)
        return batch


def draw_reversed_rows(key_B: np.ndarray) -> np.ndarray:
    """Return the indices of the rows that are reversed, each with probability 1/2: int64 [F]."""
    bits_B = hashing.draw_uint64(hashing.derive_keys(key_B, STRAND_KEY), 1)[:, 0]
    return np.flatnonzero(hashing.bits_to_bools(bits_B, 0.5))


def open_strands(rows: RowSet, objective: Any) -> RowSet:
    """Return training rows of both strands, which an evaluation reads as the store has them."""

    @functools.cache
    def open_forward() -> Callable[..., Batch]:
        forward = dataclasses.replace(objective, reverse_complement=False)
        return forward.make_rows(rows.split, rows.vocabulary)[1]

    def build_plain(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        return open_forward()(row_B, key_B)

    restore = StrandReverser(rows.vocabulary).restore_batch
    return dataclasses.replace(rows, build_plain=build_plain, restore=restore)
