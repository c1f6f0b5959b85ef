"""Rows of examples of several texts, each text a row of its own: `[CLS] text [SEP]`, or in another
frame of data/rows/frames.py. A text that is too long loses its end.

B examples   D examples of the split   K texts of each   L row length
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from data.rows import hashing
from data.rows.frames import count_around
from data.rows.labelled_rows import make_pair_builder
from data.rows.tables import Batch, find_source_edges
from data.store.split import Split
from data.vocabulary.base import Vocabulary

SHARES = (0.1, 0.5)  # of a text, the least and the largest of a span (Izacard et al. 2022)
INPUTS = ("token_ids", "attention_mask", "token_type_ids")


class TextRows:
    """The texts of a split's examples.

    start_DK, whole_DK, length_DK: int64 [D, K], first token of each text, and its number of tokens
      in the store and in a row.
    labels: float32 [D] or [D, W], the label of each example.
    is_single: whether the store has one text of each example, which is all of its rows.
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
        self.is_single = texts == 1
        shape = self.count, objective.texts
        whole_DK = np.diff(starts).reshape(self.count, texts)
        width = objective.length - count_around(objective)
        self.start_DK = np.broadcast_to(starts[:-1].reshape(self.count, texts), shape)
        self.whole_DK = np.broadcast_to(whole_DK, shape)
        self.length_DK = np.minimum(self.whole_DK, width)
        self.num_truncated = int((whole_DK > width).any(axis=1).sum())
        self.offsets = find_source_edges(split)


def make_text_rows(
    objective: Any, split: Split, vocabulary: Vocabulary
) -> tuple[TextRows, Callable[[np.ndarray, np.ndarray], Batch]]:
    """Return the table of examples and a function that lays out the rows of their texts.

    The function returns INPUTS, each [B, K, L]. Its keys draw the spans of objectives with `spans`.
    """
    table = TextRows(split, objective)
    lay_out = make_pair_builder(objective, split, vocabulary)
    # Rows are laid out as pairs: a second length of -separators removes the second text.
    no_second = -objective.separators

    def build_rows(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
        start_BK, length_BK = table.start_DK[row_B], table.length_DK[row_B]
        if objective.spans:
            first_BK, span_BK = draw_spans(table.whole_DK[row_B], key_B)
            start_BK, length_BK = start_BK + first_BK, np.minimum(span_BK, length_BK)
        start_N, length_N = start_BK.reshape(-1), length_BK.reshape(-1)
        rows = lay_out(
            np.stack([start_N, start_N], axis=1),
            np.stack([length_N, np.full_like(length_N, no_second)], axis=1),
        )
        shape = len(row_B), objective.texts, objective.length
        return {key: rows[key].reshape(shape) for key in INPUTS}

    return table, build_rows


def draw_spans(whole_BK: np.ndarray, key_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first token and the length of a span of each text, int64 [B, K].

    A span has a share of its text that is drawn from SHARES, and at least one token.

    whole_BK: numbers of tokens of the texts.
    """
    K, (low, high) = whole_BK.shape[1], SHARES
    uniform_BK = hashing.draw_uniforms(hashing.derive_keys(key_B, hashing.SPAN_LENGTHS), K)
    share_BK = low + (high - low) * uniform_BK
    span_BK = np.maximum(np.rint(share_BK * whole_BK), np.minimum(whole_BK, 1)).astype(np.int64)
    bits_BK = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.SPAN_STARTS), K)
    return hashing.bits_to_ints(bits_BK, whole_BK - span_BK + 1), span_BK
