"""Rows of articles: the fields of one article in an order of their own, each between two tokens.

A row that is longer than the article ends with padding. Of an article that is longer than the row,
the row is a window that begins at a random token, as in the released code of Zellers et al. (2019).

B rows   N positions of a row   D documents, each an article   S fields of all articles
F fields of an article at most
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from data.rows import hashing
from data.rows.tables import TokenReader, find_source_offsets
from data.store.split import Split
from data.vocabulary.field_tokens import FieldTokens

NOT_ARTICLES = (
    "the store holds a document that is not made of fields, each between its two tokens: "
    "`prepare --document fields` makes a store of articles"
)


class LocatedFields(NamedTuple):
    """The fields of some articles. Where an article has fewer than F fields, `number` is F.

    start_BF: offset of each field's first token in the store, which begins the field.
    length_BF: number of tokens of each field, with those that begin and end it.
    number_BF: number of each field in the canonical order.
    """

    start_BF: np.ndarray
    length_BF: np.ndarray
    number_BF: np.ndarray


class ArticleRows:
    """One row of each article that has tokens.

    count: number of rows.
    offsets: int64, number of each source's first row, and the end.
    """

    def __init__(self, split: Split, fields: Sequence[FieldTokens], read: TokenReader) -> None:
        """Find the rows; raises ValueError if the first documents are not articles."""
        starts_D, self.edges_S = np.asarray(split.document_starts), split.sentence_starts
        used_D = np.diff(starts_D) > 0
        self.first_S = np.searchsorted(self.edges_S, starts_D[:-1][used_D])
        self.stop_S = np.searchsorted(self.edges_S, starts_D[1:][used_D])
        self.count = len(self.first_S)
        self.offsets = find_source_offsets(split, np.concatenate([[0], np.cumsum(used_D)]))
        self.read, self.num_fields = read, len(fields)
        self.number_of_id = np.full(read.size, len(fields))
        self.number_of_id[[field.begin for field in fields]] = np.arange(len(fields))
        if self.count:
            self.locate_fields(np.arange(min(self.count, 100)))

    def locate_fields(self, row_B: np.ndarray) -> LocatedFields:
        """Return the fields of the articles of these rows, in the order of the store."""
        number_F = np.arange(self.num_fields)
        field_BF = self.first_S[row_B][:, None] + number_F
        used_BF = field_BF < self.stop_S[row_B][:, None]
        field_BF = np.where(used_BF, field_BF, 0)
        start_BF, stop_BF = (
            np.asarray(self.edges_S[field_BF]),
            np.asarray(self.edges_S[field_BF + 1]),
        )
        number_BF = np.where(used_BF, self.number_of_id[self.read(start_BF)], self.num_fields)
        is_known = (number_BF < self.num_fields) == used_BF
        is_ordered = (np.diff(number_BF, axis=1) > 0) | (number_BF[:, 1:] == self.num_fields)
        is_whole = (self.stop_S - self.first_S)[row_B] <= self.num_fields
        if not (is_known.all() and is_ordered.all() and is_whole.all()):
            raise ValueError(NOT_ARTICLES)
        return LocatedFields(start_BF, np.where(used_BF, stop_BF - start_BF, 0), number_BF)


def lay_out_fields(
    fields: LocatedFields, order_BF: np.ndarray, width: int, bits_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the tokens of rows are, given the order of each article's fields.

    Args:
      fields: the fields; fields of length 0 are left out.
      order_BF: index of the field at each place of a row.
      bits_B: uint64, random bits that decide where a window begins.

    Returns:
      index_BN: int64, offset of each token in the store; without meaning on padding.
      used_BN: bool, False on padding.
      column_BN: int64, index into the F fields of the article to which each token belongs.
    """
    start_BF = np.take_along_axis(fields.start_BF, order_BF, axis=1)
    end_BF = np.cumsum(np.take_along_axis(fields.length_BF, order_BF, axis=1), axis=1)
    total_B = end_BF[:, -1]
    skipped_B = hashing.bits_to_ints(bits_B, np.maximum(total_B - width, 0) + 1)
    position_BN = skipped_B[:, None] + np.arange(width)
    place_BN = (position_BN[:, :, None] >= end_BF[:, None, :]).sum(axis=2)
    used_BN = place_BN < end_BF.shape[1]
    place_BN = np.minimum(place_BN, end_BF.shape[1] - 1)
    begin_BF = np.pad(end_BF[:, :-1], ((0, 0), (1, 0)))
    offset_BN = position_BN - np.take_along_axis(begin_BF, place_BN, axis=1)
    index_BN = np.take_along_axis(start_BF, place_BN, axis=1) + offset_BN
    return index_BN, used_BN, np.take_along_axis(order_BF, place_BN, axis=1)
