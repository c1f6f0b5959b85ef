"""Masked language modelling: hide 15 % of the words and predict them (Devlin et al. 2018, section 3.1).

B rows   L row length   N = L - 2 tokens of text
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from data.objectives.masking import Masker, check_masking
from data.rows import DocumentRows, Reader, WindowRows
from data.sentence_rows import SentenceRows


@dataclass(frozen=True)
class MaskedLm:
    """Rows `[CLS] text [SEP]` with masked positions: BERT without sentence pairs, as in RoBERTa (Liu et al. 2019)."""

    name: ClassVar[str] = "masked_lm"
    length: int = 128  # L: tokens of a row, [CLS] and [SEP] included
    predictions: int = 20  # P: at most so many masked positions in a row
    rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    duplicates: int = 0  # 0: a new mask every epoch (RoBERTa); n: n fixed masks in turn (BERT's dupe factor)
    rows: Literal["documents", "windows", "sentences"] = "documents"  # what a row is made of: see ROWS

    def dims(self):
        return {"L": self.length, "P": self.predictions}

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 3:
            raise ValueError(f"masked_lm: length={self.length}; a row holds [CLS], text and [SEP], so 3 at least")
        check_masking(self, vocabulary, self.length - 2)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, masked as the keys say."""
        read, masker = Reader(split.tokens, vocabulary.size), Masker(self, vocabulary)
        make_table, body = ROWS[self.rows]
        table = make_table(split, self.length - 2)

        def build(row_B, key_B):
            tokens_BL = np.empty((len(row_B), self.length), np.int32)
            length_B = body(table, read, row_B, vocabulary, tokens_BL[:, 1:-1])
            tokens_BL[:, 0], tokens_BL[:, -1] = vocabulary.cls, vocabulary.pad
            tokens_BL[np.arange(len(row_B)), length_B + 1] = vocabulary.sep
            valid_BL = np.arange(self.length) < length_B[:, None] + 2
            return {"valid": valid_BL, **masker(tokens_BL, valid_BL, key_B), "tokens": tokens_BL}

        return table, build


def pieces(table, read, row_B, vocabulary, out_BN):
    """Rows that end with their document, padded: fills out_BN, returns the numbers of tokens."""
    start_B, length_B = table.spans(row_B)
    column_N = np.arange(table.width)
    out_BN[:] = read(start_B[:, None] + column_N)
    if length_B.min() < table.width:
        out_BN[column_N >= length_B[:, None]] = vocabulary.pad
    return length_B


def joined(table, read, row_B, vocabulary, out_BN):
    """Rows of one stream with [SEP] between documents, padded: fills out_BN, returns the numbers of tokens."""
    start_B, length_B = table.spans(row_B)
    separator_BN, token_B = table.separators(start_B)
    column_N = np.arange(table.width)
    out_BN[:] = read(token_B[:, None] + column_N - np.cumsum(separator_BN, axis=1))
    out_BN[separator_BN] = vocabulary.sep
    if length_B.min() < table.width:
        out_BN[column_N >= length_B[:, None]] = vocabulary.pad
    return length_B


ROWS = {  # (the table of rows, what fills them)
    "documents": (DocumentRows, pieces),  # rows end with their document
    "windows": (partial(WindowRows, separated=True), joined),  # of one stream, [SEP] between documents; all are full
    "sentences": (SentenceRows, joined),  # the same stream, as many full sentences as fit: RoBERTa's FULL-SENTENCES
}
