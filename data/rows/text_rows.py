"""Rows of examples of several texts, each text a row of its own: `[CLS] text [SEP]`, or in another
frame of data/rows/frames.py. A text that is too long loses its end.

B examples   D examples of the split   K texts of each   L row length
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from data.rows.frames import count_around
from data.rows.labelled_rows import make_pair_builder
from data.rows.tables import Batch, find_source_edges
from data.store.split import Split
from data.vocabulary.base import Vocabulary

INPUTS = ("token_ids", "attention_mask", "token_type_ids")


class TextRows:
    """The texts of a split's examples.

    start_DK, length_DK: int64 [D, K], first token and number of tokens of each text.
    labels: float32 [D], the label of each example.
    num_truncated: number of examples with a text that does not fit into a row.
    """

    def __init__(self, split: Split, objective: Any) -> None:
        """Find the texts of each example.

        Args:
          objective: with the length, the frame and the number of texts of its rows. A single text
            of an example is all of them.

        Raises:
          ValueError: the split has no labels, or its examples have another number of texts.
        """
        if split.labels is None:
            raise ValueError(
                "its documents have no labels; `finetune` makes a store of labelled examples"
            )
        self.count, self.labels = len(split.labels), split.labels
        starts = np.asarray(split.sentence_starts)
        texts = (len(starts) - 1) // self.count
        if texts not in (1, objective.texts):
            raise ValueError(
                f"its examples have {texts} texts; data.objective.texts={objective.texts}"
            )
        shape = self.count, objective.texts
        whole_DK = np.diff(starts).reshape(self.count, texts)
        width = objective.length - count_around(objective)
        self.start_DK = np.broadcast_to(starts[:-1].reshape(self.count, texts), shape)
        self.length_DK = np.broadcast_to(np.minimum(whole_DK, width), shape)
        self.num_truncated = int((whole_DK > width).any(axis=1).sum())
        self.offsets = find_source_edges(split)


def make_text_rows(
    objective: Any, split: Split, vocabulary: Vocabulary
) -> tuple[TextRows, Callable[[np.ndarray, np.ndarray], Batch]]:
    """Return the table of examples and a function that lays out the rows of their texts.

    The function returns INPUTS, each [B, K, L]; it does not use its keys.
    """
    table = TextRows(split, objective)
    lay_out = make_pair_builder(objective, split, vocabulary)
    # Rows are laid out as pairs: a second length of -separators removes the second text.
    no_second = -objective.separators

    def build_rows(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        start_N, length_N = (
            array_DK[row_B].reshape(-1) for array_DK in (table.start_DK, table.length_DK)
        )
        rows = lay_out(
            np.stack([start_N, start_N], axis=1),
            np.stack([length_N, np.full_like(length_N, no_second)], axis=1),
        )
        shape = len(row_B), objective.texts, objective.length
        return {key: rows[key].reshape(shape) for key in INPUTS}

    return table, build_rows
