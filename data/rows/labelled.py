"""Rows of labelled examples: one each, `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, cut where it is longer than a row.

What is too long alone loses its end. Of a pair the longer text loses its end, until both are as long or the pair fits: as BERT's own code
and the tokenizers of Hugging Face do ("longest first"), to the token.

B rows   L row length   D examples   A, B the two texts
"""

import numpy as np

from data.rows.tables import TokenReader, source_edges


class LabelledRows:
    """The examples of a split; `cut` of them do not fit into `length` tokens. separators: [SEP]s between the texts of a pair."""

    def __init__(self, split, length, separators):
        if split.labels is None:
            raise ValueError(
                "its documents have no labels; `finetune` makes a store of labelled examples"
            )
        self.count, self.labels = len(split.labels), split.labels
        starts = np.asarray(split.sentence_starts)
        texts = (len(starts) - 1) // self.count
        self.start_D2 = np.repeat(starts[:-1].reshape(self.count, texts), 3 - texts, axis=1)
        length_D2 = np.diff(starts).reshape(self.count, texts)
        if texts == 1:  # as a pair whose second text takes its separators back
            self.length_D2 = np.stack(
                [np.minimum(length_D2[:, 0], length - 2), np.full(self.count, -separators)], axis=1
            )
            self.cut = int((length_D2[:, 0] > length - 2).sum())
        else:
            self.length_D2 = np.stack(
                fit(length_D2[:, 0], length_D2[:, 1], length - 2 - separators), axis=1
            )
            self.cut = int((length_D2.sum(axis=1) > length - 2 - separators).sum())
        self.offsets = source_edges(split)


def fit(a_D, b_D, width):
    """Of pairs of lengths, what is left of each where they are cut to `width` together, the longer one first."""
    half = width // 2
    short_D = np.minimum(a_D, b_D)
    long_D = np.where(short_D <= half, width - short_D, width - half)
    short_D = np.minimum(short_D, half)
    second_is_long_D = a_D <= b_D  # of two that are as long, the second one keeps the odd token
    cut_a_D, cut_b_D = (
        np.where(second_is_long_D, short_D, long_D),
        np.where(second_is_long_D, long_D, short_D),
    )
    fits_D = a_D + b_D <= width
    return np.where(fits_D, a_D, cut_a_D), np.where(fits_D, b_D, cut_b_D)


def labelled_rows(objective, split, vocabulary):
    """(table, rows), where rows(row_B) gives {"token_ids", "attention_mask", "token_type_ids"} [B, L]; segments: 1 for B and the [SEP] behind it."""
    table = LabelledRows(split, objective.length, objective.separators)
    build = pairs(objective, split, vocabulary)
    return table, lambda row_B: build(table.start_D2[row_B], table.length_D2[row_B])


def pairs(objective, split, vocabulary):
    """build(start_B2, length_B2) -> rows, as `labelled_rows` has them, of the first tokens of both texts and how many are read of each."""
    separators, column_L, read = (
        objective.separators,
        np.arange(objective.length),
        TokenReader(split.tokens, vocabulary.size),
    )

    def build(start_B2, length_B2):
        (a_start_B1, b_start_B1), (a_B1, b_B1) = (
            np.expand_dims(array.T, 2) for array in (start_B2, length_B2)
        )
        second_B1 = a_B1 + 1 + separators  # where B begins
        valid_BL = column_L <= second_B1 + b_B1
        in_a_BL, in_b_BL = (
            (column_L > 0) & (column_L <= a_B1),
            (column_L >= second_B1) & (column_L < second_B1 + b_B1),
        )
        index_BL = column_L + np.where(in_b_BL, b_start_B1 - second_B1, a_start_B1 - 1)
        tokens_BL = np.where(
            in_a_BL | in_b_BL, read(np.where(in_a_BL | in_b_BL, index_BL, 0)), vocabulary.sep
        )
        tokens_BL[:, 0] = vocabulary.cls
        tokens_BL = np.where(valid_BL, tokens_BL, vocabulary.pad).astype(np.int32)
        return {
            "token_ids": tokens_BL,
            "attention_mask": valid_BL,
            "token_type_ids": ((column_L >= second_B1) & valid_BL).astype(np.int32),
        }

    return build
