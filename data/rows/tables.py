"""Which tokens make row r: tables that are computed when a store is opened and read in a few array operations a batch.

Four kinds of rows: pieces of one document; windows over the stream of all documents; full sentences of that stream
(`data/rows/full_sentences.py`); pairs of sentences (`data/rows/sentence_pairs.py`). The rows of a table are numbered through the sources of
the split in their order: source s has rows offsets[s] to offsets[s + 1]. No token is dropped; each kind says what it
does where a row does not come out even.

B rows   N tokens of a row, without special tokens   D documents   S sources
"""

import numpy as np
from numpy.lib.stride_tricks import as_strided

LONG = 2**17  # a table of fewer numbers stays in a processor's cache


class TokenReader:
    """Reads ids [B, N] from a split's memory-mapped tokens, and refuses ids that its vocabulary does not have.

    An id beyond the vocabulary is silent on an accelerator (the lookup clamps or gives NaN), so it is caught here.
    """

    def __init__(self, tokens, size):
        self.tokens, self.size = (
            np.asarray(tokens) if isinstance(tokens, np.ndarray) else tokens,
            size,
        )  # a memmap is slower

    def __call__(self, index_BN):
        """Ids at the given offsets; offsets beyond an end read the token there."""
        return self.known(np.take(self.tokens, index_BN, mode="clip"))

    def runs(self, start_B, width):
        """The same for `width` offsets from each given one on: [B, width]. Rows are copied whole, which takes a quarter of the time."""
        tokens = self.tokens
        within = start_B.min(initial=0) >= 0 and start_B.max(initial=0) + width <= len(tokens)
        if not (within and isinstance(tokens, np.ndarray)):
            return self(start_B[:, None] + np.arange(width))
        return self.known(
            as_strided(
                tokens, (len(tokens) - width + 1, width), tokens.strides * 2, writeable=False
            )[start_B]
        )

    def known(self, ids_BN):
        """The ids, if the vocabulary has them all."""
        if ids_BN.max(initial=0) >= self.size:
            raise ValueError(
                f"the token store holds the id {ids_BN.max()}, but its vocabulary has {self.size} ids: "
                "the store is damaged, or its vocabulary was replaced; run prepare again"
            )
        return ids_BN


class DocumentRows:
    """Rows of at most `width` tokens that end with their document: its last row is shorter."""

    def __init__(self, split, width):
        self.starts_D, self.width = np.asarray(split.document_starts), width
        rows_D = -(-np.diff(self.starts_D) // width)
        self.first_row_D = np.concatenate([[0], np.cumsum(rows_D)])
        self.count = int(self.first_row_D[-1])
        self.offsets = source_offsets(split, self.first_row_D)

    @property
    def filled(self):
        """The share of the rows' places that hold a token."""
        return int(self.starts_D[-1]) / max(self.count * self.width, 1)

    def spans(self, row_B):
        """(first token, number of tokens) of each row: int64 [B]."""
        document_B = found(self.first_row_D, row_B) - 1
        start_B = self.starts_D[document_B] + (row_B - self.first_row_D[document_B]) * self.width
        return start_B, np.minimum(self.starts_D[document_B + 1] - start_B, self.width)


class WindowRows:
    """Rows of exactly `width` tokens of the stream of a source's documents; its last row is moved back to end with it.

    The tokens that the last row shares with the one before are seen twice an epoch. A source shorter than a row
    borrows from its neighbours (`short` names it, for training's refusal); a whole split that is shorter raises.
    With `separated`, the stream has a separator between documents (empty ones aside). The last `shared` tokens of a
    row are also the first of the next.
    """

    def __init__(self, split, width, separated=False, shared=0):
        starts_D = np.asarray(split.document_starts)
        ends_D = starts_D[1:][
            np.diff(starts_D) > 0
        ]  # where each document that is not empty ends, in tokens
        self.ends_D = (
            ends_D + np.arange(1, len(ends_D) + 1) if separated else None
        )  # in the stream, with separators
        self.width, self.stride = width, width - shared
        edges_S = source_edges(split)
        begin_S = starts_D[edges_S]  # where each source begins, and the end, in tokens
        if separated:
            begin_S = begin_S + np.searchsorted(ends_D, begin_S, side="right")
        self.begin_S, self.length_S = begin_S[:-1], np.maximum(np.diff(begin_S) - separated, 0)
        self.total = int(begin_S[-1]) - separated  # no separator behind the last document
        if self.total < width:
            raise ValueError(
                f"{self.total} tokens are all there is, fewer than the {width} of one row: "
                "take a larger corpus or shorter rows"
            )
        self.short = [s.name for s, length in zip(split.sources, self.length_S) if length < width]
        self.offsets = np.concatenate(
            [[0], np.cumsum(-(-np.maximum(self.length_S - shared, 0) // self.stride))]
        )
        self.count = int(self.offsets[-1])
        # Rows of each source that follow one another: all but a last one that was moved back.
        self.whole_S = np.maximum(self.length_S - shared, 0) // self.stride

    def starts(self, row_B):
        """First position of each row in the stream: int64 [B]."""
        source_B = np.searchsorted(self.offsets, row_B, side="right") - 1
        start_B = self.begin_S[source_B] + (row_B - self.offsets[source_B]) * self.stride
        last_B = self.begin_S[source_B] + self.length_S[source_B] - self.width
        last_B = np.clip(last_B, 0, self.total - self.width)
        return np.minimum(start_B, last_B)

    def spans(self, row_B):
        """(first position in the stream, number of tokens) of each row: int64 [B]."""
        return self.starts(row_B), np.full(len(row_B), self.width)

    def separators(self, start_B):
        """(where rows of a separated stream hold a separator [B, N], the first token of each row [B])."""
        return separators(self.ends_D, self.width, start_B)


def found(edges_D, place_B):
    """np.searchsorted(edges_D, place_B, side="right"); in a long table in the order of the places, which fetches less of it from memory."""
    if len(edges_D) < LONG:
        return np.searchsorted(edges_D, place_B, side="right")
    order_B = np.argsort(place_B)
    found_B = np.empty(len(place_B), np.int64)
    found_B[order_B] = np.searchsorted(edges_D, place_B[order_B], side="right")
    return found_B


def separators(ends_D, width, start_B):
    """(where rows that begin at the positions given hold a separator [B, N], the first token of each [B]).

    ends_D: the position behind each separator. The stream's positions count the separators, tokens do not.
    """
    before_B = found(ends_D, start_B)  # separators before the row
    after_B = found(ends_D, start_B + width)
    number_B = after_B - before_B
    row = np.repeat(np.arange(len(start_B)), number_B)
    which = (
        np.arange(len(row)) - np.repeat(np.cumsum(number_B) - number_B, number_B) + before_B[row]
    )
    separator_BN = np.zeros((len(start_B), width), bool)
    separator_BN[row, ends_D[which] - 1 - start_B[row]] = True
    return separator_BN, start_B - before_B


def source_edges(split):
    """Document numbers where the sources begin, and the end: int64 [S + 1]. Sources lie one behind the other."""
    return np.array(
        [split.sources[0].documents[0], *(source.documents[1] for source in split.sources)],
        np.int64,
    )


def source_offsets(split, first_row_D):
    """Row numbers where the sources begin, and the end: int64 [S + 1], from the first row of each document."""
    return first_row_D[source_edges(split)]
