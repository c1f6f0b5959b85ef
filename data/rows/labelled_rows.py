"""Rows of labelled examples, one each: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, or in another
frame of data/rows/frames.py.

A single text that is too long loses its end. Of a pair, the longer text loses its end until both
have the same length or the pair fits, exactly as in the tokenizers of Hugging Face ("longest
first"). If both texts are cut and the width is odd, the second keeps one token more; in BERT's own
code it is the first.

B rows   L row length   D examples   A, B the two texts
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from data.rows.frames import count_around, find_padding, find_separator, frame_rows
from data.rows.tables import Batch, TokenReader, find_source_edges, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary


class LabelledRows:
    """The examples of a split.

    start_D2, length_D2: int64 [D, 2], first token and number of tokens of each text.
    labels: float32 [D], the label of each example.
    num_truncated: number of examples that do not fit into a row.
    """

    def __init__(self, split: Split, objective: Any, vocabulary: Vocabulary) -> None:
        """Find the texts of each example.

        Args:
          objective: with the length, the frame and the separators of its rows.

        Raises:
          ValueError: the split has no labels, or the vocabulary has no token between two texts.
        """
        if split.labels is None:
            raise ValueError(
                "its documents have no labels; `finetune` makes a store of labelled examples"
            )
        self.count, self.labels = len(split.labels), split.labels
        starts = np.asarray(split.sentence_starts)
        texts = (len(starts) - 1) // self.count
        if texts == 2:
            check_separator(objective, vocabulary)
        width, separators = objective.length - count_around(objective), objective.separators
        self.start_D2 = np.repeat(starts[:-1].reshape(self.count, texts), 3 - texts, axis=1)
        length_D2 = np.diff(starts).reshape(self.count, texts)
        if texts == 1:
            # Rows are laid out as pairs: a second length of -separators removes the separators.
            self.length_D2 = np.stack(
                [np.minimum(length_D2[:, 0], width), np.full(self.count, -separators)], axis=1
            )
            self.num_truncated = int((length_D2[:, 0] > width).sum())
        else:
            self.length_D2 = np.stack(
                truncate_lengths(length_D2[:, 0], length_D2[:, 1], width - separators), axis=1
            )
            self.num_truncated = int((length_D2.sum(axis=1) > width - separators).sum())
        self.offsets = find_source_edges(split)


def check_separator(objective: Any, vocabulary: Vocabulary) -> None:
    """Raise a ValueError unless the vocabulary has the token between two texts."""
    if find_separator(objective, vocabulary) is None:
        raise ValueError(
            f"{objective.name}: a pair of texts needs a token between them, and this "
            f"{vocabulary.kind} vocabulary of {vocabulary.size} ids has none: use single texts or "
            "another model"
        )


def truncate_lengths(a_D: np.ndarray, b_D: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the lengths of pairs that are cut to `width` tokens in total, the longer text first.

    a_D, b_D: the lengths of the two texts.
    """
    half = width // 2
    short_D = np.minimum(a_D, b_D)
    long_D = np.where(short_D <= half, width - short_D, width - half)
    short_D = np.minimum(short_D, half)
    second_is_long_D = a_D <= b_D  # of two equal lengths, the second text keeps the odd token
    cut_a_D = np.where(second_is_long_D, short_D, long_D)
    cut_b_D = np.where(second_is_long_D, long_D, short_D)
    fits_D = a_D + b_D <= width
    return np.where(fits_D, a_D, cut_a_D), np.where(fits_D, b_D, cut_b_D)


def make_labelled_rows(
    objective: Any, split: Split, vocabulary: Vocabulary
) -> tuple[LabelledRows, Callable[[np.ndarray], Batch]]:
    """Return the table of examples and a function that lays out the rows row_B of it.

    The function returns {"token_ids", "attention_mask", "token_type_ids"} [B, L]; token type ids
    are 1 for B and its [SEP].
    """
    table = LabelledRows(split, objective, vocabulary)
    build = make_pair_builder(objective, split, vocabulary)
    return table, lambda row_B: build(table.start_D2[row_B], table.length_D2[row_B])


def make_pair_builder(
    objective: Any, split: Split, vocabulary: Vocabulary
) -> Callable[[np.ndarray, np.ndarray], Batch]:
    """Return a function that lays out pairs of texts as rows; see `make_labelled_rows`.

    Its arguments are int64 [B, 2]: the first token of both texts, and how many tokens are read.
    """
    separators, column_L = objective.separators, np.arange(objective.length)
    read = TokenReader(split.tokens, vocabulary.size)
    pad, is_framed = find_padding(vocabulary), count_around(objective) > 0
    first, last = (1, 1) if is_framed else (0, 0)  # numbers of tokens before and after the texts
    sep = find_separator(objective, vocabulary)
    sep = pad if sep is None else sep  # single texts have none

    def build_rows(start_B2: np.ndarray, length_B2: np.ndarray) -> Batch:
        (a_start_B1, b_start_B1), (a_B1, b_B1) = (
            np.expand_dims(array.T, 2) for array in (start_B2, length_B2)
        )
        second_B1 = first + a_B1 + separators  # where B begins
        mask_BL = column_L < second_B1 + b_B1 + last
        in_a_BL = (column_L >= first) & (column_L < first + a_B1)
        in_b_BL = (column_L >= second_B1) & (column_L < second_B1 + b_B1)
        index_BL = column_L + np.where(in_b_BL, b_start_B1 - second_B1, a_start_B1 - first)
        tokens_BL = np.where(in_a_BL | in_b_BL, read(np.where(in_a_BL | in_b_BL, index_BL, 0)), sep)
        if is_framed:
            tokens_BL[:, 0] = require_id(vocabulary.cls)
        tokens_BL = np.where(mask_BL, tokens_BL, pad).astype(np.int32)
        rows = {
            "token_ids": tokens_BL,
            "attention_mask": mask_BL,
            "token_type_ids": ((column_L >= second_B1) & mask_BL).astype(np.int32),
        }
        return frame_rows(objective, rows)

    return build_rows
