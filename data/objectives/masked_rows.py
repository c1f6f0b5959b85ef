"""What a row of masked words is made of: documents, windows of a stream, full sentences, or several texts.

B rows   S of them   L row length   N = L - 2 tokens of text
"""

from functools import partial

import numpy as np

from data.objectives.masking import check_masking, count
from data.rows.full_sentences import SentenceRows
from data.rows.packed import PackedRows, laid_out
from data.rows.tables import DocumentRows, TokenReader, WindowRows


def check_rows(objective, vocabulary):
    """Raise a ValueError unless there can be such rows of this vocabulary."""
    if objective.length < 3:
        raise ValueError(
            f"{objective.name}: length={objective.length}; a row holds [CLS], text and [SEP], so 3 at least"
        )
    check_masking(objective, vocabulary, objective.length - 2)


def masked_rows(objective, split, vocabulary, masker):
    """(table of rows, build), where build(row_B, key_B) is rows of the objective's kind that the masker has masked."""
    table, lay_out = ROWS[objective.rows](split, objective.length, vocabulary)

    def build(row_B, key_B):
        rows = lay_out(row_B)
        return rows | masker(
            rows["token_ids"], rows["attention_mask"], key_B
        )  # which masks the tokens in place

    return table, build


def framed(make_table, body, split, length, vocabulary):
    """(table of rows, lay_out), where lay_out(row_B) is rows `[CLS] text [SEP]`."""
    table, read = make_table(split, length - 2), TokenReader(split.tokens, vocabulary.size)
    column_L = np.arange(length, dtype=np.int32)

    def lay_out(row_B):
        tokens_BL = np.empty((len(row_B), length), np.int32)
        length_B = body(table, read, row_B, vocabulary.sep, tokens_BL[:, 1:-1])
        valid_BL = column_L < (length_B + 2).astype(np.int32)[:, None]
        if not valid_BL[:, -1].all():
            np.copyto(tokens_BL, vocabulary.pad, where=~valid_BL)
        tokens_BL[:, 0] = vocabulary.cls
        tokens_BL[np.arange(len(row_B)), length_B + 1] = vocabulary.sep
        return {"token_ids": tokens_BL, "attention_mask": valid_BL}

    return table, lay_out


def packed(split, length, vocabulary):
    """(table of rows, lay_out), where lay_out(row_B) is rows `[CLS] text [SEP] [CLS] text [SEP] ...`."""
    table, read = PackedRows(split, length), TokenReader(split.tokens, vocabulary.size)
    return table, lambda row_B: laid_out(table, read, row_B, vocabulary)


def pieces(table, read, row_B, separator, out_BN):
    """Rows that end with their document, and so hold no separator: fills the left of out_BN, returns the numbers of tokens."""
    start_B, length_B = table.spans(row_B)
    out_BN[:] = read.runs(start_B, table.width)
    return length_B


def joined(table, read, row_B, separator, out_BN):
    """Rows of one stream with a separator between documents: fills the left of out_BN, returns the numbers of tokens."""
    start_B, length_B = table.spans(row_B)
    separator_BN, token_B = table.separators(start_B)
    ids_BN = read.runs(token_B, table.width)
    out_BN[:] = ids_BN
    number_B = count(separator_BN)
    several = np.flatnonzero(number_B)  # rows of more than one document
    out_SN = np.full((len(several), table.width), separator, np.int32)
    out_SN[~separator_BN[several]] = ids_BN[several][
        np.arange(table.width) < table.width - number_B[several, None]
    ]
    out_BN[several] = out_SN
    return length_B


ROWS = {  # (split, length, vocabulary) -> (table of rows, what lays them out)
    "documents": partial(framed, DocumentRows, pieces),  # rows end with their document
    "windows": partial(
        framed, partial(WindowRows, separated=True), joined
    ),  # of one stream, [SEP] between documents; all are full
    "sentences": partial(
        framed, SentenceRows, joined
    ),  # the same stream, as many full sentences as fit: RoBERTa's FULL-SENTENCES
    "packed": packed,  # as documents, several to a row, none of which reads another
}
