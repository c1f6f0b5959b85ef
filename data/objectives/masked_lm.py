"""Masked language modelling: hide 15 % of the words and predict them (Devlin et al. 2018, section 3.1).

B rows   L row length   N = L - 2 tokens of text
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.objectives.masking import Masker, check_masking
from data.rows import DocumentRows, Reader, WindowRows


@dataclass(frozen=True)
class MaskedLm:
    """Rows `[CLS] text [SEP]` with masked positions: BERT without sentence pairs, as in RoBERTa (Liu et al. 2019)."""

    name: ClassVar[str] = "masked_lm"
    length: int = 128  # L: tokens of a row, [CLS] and [SEP] included
    predictions: int = 20  # P: at most so many masked positions in a row
    rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    duplicates: int = 0  # 0: a new mask every epoch (RoBERTa); n: n fixed masks in turn (BERT's dupe factor)
    join_documents: bool = False  # rows end with their document | windows of one stream, [SEP] between documents

    def dims(self):
        return {"L": self.length, "P": self.predictions}

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 3:
            raise ValueError(f"masked_lm: length={self.length}; a row holds [CLS], text and [SEP], so 3 at least")
        check_masking(self, vocabulary, self.length - 2)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, masked as the keys say."""
        read, masker, width = Reader(split.tokens, vocabulary.size), Masker(self, vocabulary), self.length - 2
        if self.join_documents:
            table, body, between = WindowRows(split, width, separated=True), joined, vocabulary.sep
        else:
            table, body, between = DocumentRows(split, width), pieces, vocabulary.pad

        def build(row_B, key_B):
            tokens_BL = np.empty((len(row_B), self.length), np.int32)
            length_B = body(table, read, row_B, between, tokens_BL[:, 1:-1])
            tokens_BL[:, 0], tokens_BL[:, -1] = vocabulary.cls, vocabulary.pad
            tokens_BL[np.arange(len(row_B)), length_B + 1] = vocabulary.sep
            valid_BL = np.arange(self.length) < length_B[:, None] + 2
            return {"valid": valid_BL, **masker(tokens_BL, valid_BL, key_B), "tokens": tokens_BL}

        return table, build


def pieces(table, read, row_B, pad, out_BN):
    """Rows that end with their document, padded: fills out_BN, returns the numbers of tokens."""
    start_B, length_B = table.spans(row_B)
    column_N = np.arange(table.width)
    out_BN[:] = read(start_B[:, None] + column_N)
    if length_B.min() < table.width:
        out_BN[column_N >= length_B[:, None]] = pad
    return length_B


def joined(table, read, row_B, separator, out_BN):
    """Rows of one stream with a separator, such as [SEP], between documents: fills out_BN, returns the numbers of tokens."""
    separator_BN, token_B = table.separators(table.starts(row_B))
    behind_BN = np.cumsum(separator_BN, axis=1)
    out_BN[:] = read(token_B[:, None] + np.arange(table.width) - behind_BN)
    out_BN[separator_BN] = separator
    return np.full(len(row_B), table.width)
