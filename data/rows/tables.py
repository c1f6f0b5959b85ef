"""Tables of rows: which tokens of the store each row holds.

A table is computed once, when a store is opened; a batch then takes a few array operations. This
module has the two plainest kinds of rows, pieces of one document and windows over the stream of all
documents; each other kind has a module of this folder. Rows are numbered through the sources of the
split in order: source s has the rows offsets[s] to offsets[s + 1] - 1. Each kind documents what it
does where the text does not fill the last row.

B rows   N tokens of a row, without special tokens   D documents   S sources
"""

from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from data.store.split import Split

LONG_TABLE = 2**17  # a table of fewer numbers fits into a processor's cache

Batch = dict[str, np.ndarray]  # key of the batch spec -> array


class RowTable(Protocol):
    """A table of rows.

    count: number of rows.
    offsets: int64 [S + 1], number of each source's first row, and the number of all rows.
    """

    count: int
    offsets: np.ndarray


class TokenReader:
    """Read ids [B, N] from the memory-mapped tokens of a split, and check that they are known.

    On an accelerator, an id outside of the vocabulary raises no error (the lookup clamps it or
    gives NaN), so it is refused here.
    """

    def __init__(self, tokens: Any, size: int) -> None:
        """Read from `tokens`, an array of ids [T], for a vocabulary of `size` ids."""
        # A plain array is faster than a memmap.
        self.tokens = np.asarray(tokens) if isinstance(tokens, np.ndarray) else tokens
        self.size = size

    def __call__(self, index_BN: np.ndarray) -> np.ndarray:
        """Return the ids at these offsets; an offset beyond an end reads the token at that end."""
        return self.check_ids(np.take(self.tokens, index_BN, mode="clip"))

    def read_runs(self, start_B: np.ndarray, width: int) -> np.ndarray:
        """Return the `width` ids from each offset on: [B, width].

        Rows are copied whole, which takes a quarter of the time of indexing.
        """
        tokens = self.tokens
        within = start_B.min(initial=0) >= 0 and start_B.max(initial=0) + width <= len(tokens)
        if not (within and isinstance(tokens, np.ndarray)):
            return self(start_B[:, None] + np.arange(width))
        windows = as_strided(
            tokens, (len(tokens) - width + 1, width), tokens.strides * 2, writeable=False
        )
        return self.check_ids(windows[start_B])

    def check_ids(self, ids_BN: np.ndarray) -> np.ndarray:
        """Return the ids; raise a ValueError unless the vocabulary has all of them."""
        if ids_BN.max(initial=0) >= self.size:
            raise ValueError(
                f"the token store holds the id {ids_BN.max()}, but its vocabulary has {self.size} "
                "ids: the store is damaged, or its vocabulary was replaced; run prepare again"
            )
        return ids_BN


class DocumentRows:
    """Rows of at most `width` tokens of one document; the last row of a document is shorter."""

    def __init__(self, split: Split, width: int) -> None:
        self.starts_D, self.width = np.asarray(split.document_starts), width
        rows_D = -(-np.diff(self.starts_D) // width)
        self.first_row_D = np.concatenate([[0], np.cumsum(rows_D)])
        self.count = int(self.first_row_D[-1])
        self.offsets = find_source_offsets(split, self.first_row_D)

    @property
    def fill_ratio(self) -> float:
        """The share of the rows' positions that hold a token."""
        return int(self.starts_D[-1]) / max(self.count * self.width, 1)

    def locate_spans(self, row_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (first token, number of tokens) of each row: int64 [B] each."""
        document_B = search_sorted(self.first_row_D, row_B) - 1
        start_B = self.starts_D[document_B] + (row_B - self.first_row_D[document_B]) * self.width
        return start_B, np.minimum(self.starts_D[document_B + 1] - start_B, self.width)


class WindowRows:
    """Rows of exactly `width` tokens of the stream of a source's documents.

    The last row of a source is moved back to end with it; training reads the tokens that it shares
    with the row before twice an epoch. A source shorter than a row borrows tokens from its
    neighbours; `short` lists such sources, which training refuses. Evaluation gives tokens that are
    read twice or borrowed no weight (`mark_own_tokens`).
    """

    def __init__(self, split: Split, width: int, separated: bool = False, shared: int = 0) -> None:
        """Compute the rows.

        Args:
          separated: whether the stream has a separator between documents that are not empty.
          shared: number of tokens at a row's end that are also the first of the next row.

        Raises:
          ValueError: the whole split is shorter than one row.
        """
        starts_D = np.asarray(split.document_starts)
        ends_D = starts_D[1:][np.diff(starts_D) > 0]  # token after each document that has any
        # The same as positions of the stream, which count the separators.
        self.ends_D = ends_D + np.arange(1, len(ends_D) + 1) if separated else None
        self.width, self.stride, self.shared = width, width - shared, shared
        edges_S = find_source_edges(split)
        begin_S = starts_D[edges_S]  # first token of each source, and the end
        if separated:
            begin_S = begin_S + np.searchsorted(ends_D, begin_S, side="right")
        self.begin_S, self.length_S = begin_S[:-1], np.maximum(np.diff(begin_S) - separated, 0)
        self.total = int(begin_S[-1]) - separated  # no separator after the last document
        if self.total < width:
            raise ValueError(
                f"there are only {self.total} tokens, fewer than the {width} of one row: "
                "take a larger corpus or shorter rows"
            )
        self.short = [s.name for s, length in zip(split.sources, self.length_S) if length < width]
        self.offsets = np.concatenate(
            [[0], np.cumsum(-(-np.maximum(self.length_S - shared, 0) // self.stride))]
        )
        self.count = int(self.offsets[-1])
        # Consecutive rows of each source, that is, without a last row that was moved back.
        self.whole_S = np.maximum(self.length_S - shared, 0) // self.stride

    def locate_starts(self, row_B: np.ndarray) -> np.ndarray:
        """Return the first position of each row in the stream: int64 [B]."""
        source_B = np.searchsorted(self.offsets, row_B, side="right") - 1
        start_B = self.begin_S[source_B] + (row_B - self.offsets[source_B]) * self.stride
        last_B = self.begin_S[source_B] + self.length_S[source_B] - self.width
        last_B = np.clip(last_B, 0, self.total - self.width)
        return np.minimum(start_B, last_B)

    def locate_spans(self, row_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (first position in the stream, number of tokens) of each row: int64 [B] each."""
        return self.locate_starts(row_B), np.full(len(row_B), self.width)

    def mark_own_tokens(self, row_B: np.ndarray) -> np.ndarray:
        """Return which positions are the row's alone: bool [B, N].

        Each token of a source is at one such position of one row, except the first `shared` tokens
        of the source, which are at none.
        """
        source_B = np.searchsorted(self.offsets, row_B, side="right") - 1
        begin_B = self.begin_S[source_B]
        first_B = begin_B + (row_B - self.offsets[source_B]) * self.stride + self.shared
        end_B = np.minimum(first_B + self.stride, begin_B + self.length_S[source_B])
        position_BN = self.locate_starts(row_B)[:, None] + np.arange(self.width)
        return (first_B[:, None] <= position_BN) & (position_BN < end_B[:, None])

    def find_continued_rows(self, row_B: np.ndarray) -> np.ndarray:
        """Return which rows begin where the row before them ended: bool [B].

        The first row of a source does not, nor one that was moved back.
        """
        source_B = np.searchsorted(self.offsets, row_B, side="right") - 1
        within_B = row_B - self.offsets[source_B]
        start_B = self.begin_S[source_B] + within_B * self.stride
        return (within_B > 0) & (self.locate_starts(row_B) == start_B)

    def find_separators(self, start_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where separated rows hold a separator, and each row's first token.

        Returns:
          bool [B, N], True at a separator; int64 [B], the offset of the row's first token.
        """
        assert self.ends_D is not None  # the stream was made with separators
        return mark_separators(self.ends_D, self.width, start_B)


def require_id(token_id: int | None) -> int:
    """Return the id of a special token that the objective's `check_vocabulary` has made sure of."""
    assert token_id is not None
    return token_id


def search_sorted(edges_D: np.ndarray, position_B: np.ndarray) -> np.ndarray:
    """Return np.searchsorted(edges_D, position_B, side="right").

    A long table is searched in the order of the positions, which reads less of it from memory.
    """
    if len(edges_D) < LONG_TABLE:
        return np.searchsorted(edges_D, position_B, side="right")
    order_B = np.argsort(position_B)
    found_B = np.empty(len(position_B), np.int64)
    found_B[order_B] = np.searchsorted(edges_D, position_B[order_B], side="right")
    return found_B


def mark_separators(
    ends_D: np.ndarray, width: int, start_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return where rows hold a separator, and each row's first token.

    Args:
      ends_D: the position after each separator. Positions of the stream count the separators.
      start_B: the first position of each row.

    Returns:
      separator_BN: bool [B, N], True at a separator.
      token_B: int64 [B], the number of each row's first token; these do not count the separators.
    """
    before_B = search_sorted(ends_D, start_B)  # separators before the row
    after_B = search_sorted(ends_D, start_B + width)
    number_B = after_B - before_B
    row = np.repeat(np.arange(len(start_B)), number_B)
    which = (
        np.arange(len(row)) - np.repeat(np.cumsum(number_B) - number_B, number_B) + before_B[row]
    )
    separator_BN = np.zeros((len(start_B), width), bool)
    separator_BN[row, ends_D[which] - 1 - start_B[row]] = True
    return separator_BN, start_B - before_B


def find_source_edges(split: Split) -> np.ndarray:
    """Return the number of each source's first document, and the end: int64 [S + 1].

    Sources are contiguous.
    """
    return np.array(
        [split.sources[0].documents[0], *(source.documents[1] for source in split.sources)],
        np.int64,
    )


def find_source_offsets(split: Split, first_row_D: np.ndarray) -> np.ndarray:
    """Return the number of each source's first row, and the end: int64 [S + 1].

    first_row_D: the first row of each document.
    """
    return first_row_D[find_source_edges(split)]
