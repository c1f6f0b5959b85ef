"""Sentence pairs: documents cut into chunks of sentences, and two segments drawn from a chunk.

Devlin et al. (2018, section 3.1 and appendix A.2) put consecutive sentences into a row, cut the row
between two of them, and half of the time replace the second part by text from another document.
Their walk over a document is sequential: the sentences that one row leaves over begin the next.
Here the chunks are fixed when the store is opened, so that row r is a table look-up; the sentences
that a short row, or one with a random second segment, leaves over are read in other epochs
(data/rows/sentence_chunks.py).

B rows   L row length   D documents that are not empty   S sources   Q pieces   C chunks
N random draws of a row   W words of 64 random bits
"""

import numpy as np

from data.rows import hashing
from data.rows.sentence_chunks import find_chunks, find_next_chunk, split_pieces
from data.rows.tables import Batch, TokenReader, find_source_edges, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary

Segment = tuple[np.ndarray, np.ndarray]  # (first token, number of tokens) of each row: int64 [B]


class ChunkRows:
    """The chunks of a split, at most `width` tokens each, and where each is cut in two.

    pieces_Q: first token of each piece, and the end: int64 [Q + 1].
    first_D: first piece of each document, and the end: int64 [D + 1].
    chunk_C: first piece of each chunk.
    edges_S: first document of each source, and the end: int64 [S + 1].
    long_sentences: number of sentences that are cut.
    """

    def __init__(self, split: Split, width: int) -> None:
        starts = np.asarray(split.document_starts)
        filled = np.diff(starts) > 0
        edges_S = np.concatenate([[0], np.cumsum(filled)])[find_source_edges(split)]
        starts_D = np.append(starts[:-1][filled], starts[-1])
        self.edges_S, self.width = edges_S, width
        self.pieces_Q, self.long_sentences = split_pieces(
            np.asarray(split.sentence_starts), starts_D, width // 2
        )
        self.first_D = np.searchsorted(self.pieces_Q, starts_D)
        chunks_D, self.chunk_C = find_chunks(self.pieces_Q, self.first_D, width)
        self.first_chunk_D = np.concatenate([[0], np.cumsum(chunks_D)])
        self.offsets, self.count = self.first_chunk_D[edges_S], len(self.chunk_C)

    def draw_halves(
        self, row_B: np.ndarray, key_B: np.ndarray, short_seq_prob: float
    ) -> tuple[Segment, Segment, np.ndarray, np.ndarray]:
        """Draw two consecutive segments of each chunk.

        The first segment has at least one token, and both together have at most `width`. The
        second is empty where the document is a single token.

        Args:
          key_B: uint64 keys of the draws.
          short_seq_prob: probability that a row aims at a random shorter length.

        Returns:
          The two segments, the length that each row aims at, and its document.
        """
        bits_NB = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.PAIR), 3).T
        document_B = np.searchsorted(self.first_chunk_D, row_B, side="right") - 1
        low_B = self.chunk_C[row_B]
        start_B = self.pieces_Q[low_B]
        stop_B = find_next_chunk(self.pieces_Q, low_B, self.first_D[document_B + 1], self.width)
        # Devlin et al.: a short row aims at 2 to `width` tokens.
        target_B = np.where(
            hashing.bits_to_bools(bits_NB[0], short_seq_prob),
            2 + hashing.bits_to_ints(bits_NB[1], self.width - 1),
            self.width,
        )
        high_B = np.searchsorted(self.pieces_Q, start_B + target_B, side="left")
        high_B = np.minimum(np.maximum(high_B, low_B + 2), stop_B)
        cut_B = low_B + 1 + hashing.bits_to_ints(bits_NB[2], np.maximum(high_B - low_B - 1, 1))
        second_B = self.pieces_Q[cut_B]
        return (
            (start_B, second_B - start_B),
            (second_B, self.pieces_Q[high_B] - second_B),
            target_B,
            document_B,
        )


class SentencePairRows(ChunkRows):
    """Chunks whose second segment may come from another document.

    pool_S, documents_S: first document, and number of documents, from which a chunk of each source
      takes its random second segment.
    """

    def __init__(self, split: Split, width: int) -> None:
        super().__init__(split, width)
        edges_S = self.edges_S
        if len(self.first_D) <= 2:
            raise ValueError(
                f"there is only {len(self.first_D) - 1} document, but sentence_pair takes second "
                "segments from others: two documents at least "
                "(a file, a blank-line block or a record each: see prepare --help)"
            )
        alone_S = np.diff(edges_S) < 2  # a source of one document draws from the whole split
        self.pool_S = np.where(alone_S, edges_S[0], edges_S[:-1])
        self.documents_S = np.where(alone_S, edges_S[-1] - edges_S[0], np.diff(edges_S))

    def draw_pairs(
        self, row_B: np.ndarray, key_B: np.ndarray, short_seq_prob: float, random_next: float
    ) -> tuple[Segment, Segment, np.ndarray]:
        """Draw two segments for each row.

        Both segments have at least one token, and together at most `width`.

        Args:
          key_B: uint64 keys of the draws.
          short_seq_prob: probability that a row aims at a random shorter length.
          random_next: probability of a second segment from another document of the same source.

        Returns:
          The two segments, and bool [B], True where the second is from another document.
        """
        (start_B, a_B), (second_B, b_B), target_B, document_B = self.draw_halves(
            row_B, key_B, short_seq_prob
        )
        bits_NB = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.PAIR), 6).T[3:]
        other_B = hashing.bits_to_bools(bits_NB[0], random_next) | (b_B == 0)
        from_B, to_B = self.draw_random_next(
            document_B, bits_NB[1], bits_NB[2], np.maximum(target_B - a_B, 1)
        )
        second_B, b_B = np.where(other_B, from_B, second_B), np.where(other_B, to_B - from_B, b_B)
        front_a_B, a_B, front_b_B, b_B = truncate_pairs(a_B, b_B, self.width, key_B)
        return (start_B + front_a_B, a_B), (second_B + front_b_B, b_B), other_B

    def draw_random_next(
        self,
        document_B: np.ndarray,
        document_bits_B: np.ndarray,
        piece_bits_B: np.ndarray,
        length_B: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens [from, to) from a random piece of another document of the source on.

        They are `length_B` tokens if the document has them.
        """
        source_B = np.searchsorted(self.edges_S, document_B, side="right") - 1
        first_B, documents_B = self.pool_S[source_B], self.documents_S[source_B]
        step_B = 1 + hashing.bits_to_ints(document_bits_B, documents_B - 1)
        document_B = first_B + (document_B - first_B + step_B) % documents_B
        begin_B, end_B = self.first_D[document_B], self.first_D[document_B + 1]
        piece_B = begin_B + hashing.bits_to_ints(piece_bits_B, end_B - begin_B)
        stop_B = np.searchsorted(self.pieces_Q, self.pieces_Q[piece_B] + length_B, side="left")
        return self.pieces_Q[piece_B], self.pieces_Q[np.minimum(stop_B, end_B)]


def lay_out_pairs(
    read: TokenReader, vocabulary: Vocabulary, length: int, first: Segment, second: Segment
) -> Batch:
    """Return {"token_ids", "attention_mask", "token_type_ids"} [B, L] of [CLS] A [SEP] B [SEP]."""
    (a_start_B, a_B), (b_start_B, b_B) = first, second
    column_L, row = np.arange(length), np.arange(len(a_B))
    after_a_BL = column_L > a_B[:, None] + 1
    mask_BL = column_L < (a_B + b_B)[:, None] + 3
    tokens_BL = np.empty(mask_BL.shape, np.int32)
    tokens_BL[:, 1:] = read.read_runs(a_start_B, length - 1)
    np.copyto(tokens_BL, read.read_runs(b_start_B - a_B - 2, length), where=after_a_BL)
    np.copyto(tokens_BL, require_id(vocabulary.pad), where=~mask_BL)
    tokens_BL[:, 0] = require_id(vocabulary.cls)
    tokens_BL[row, a_B + 1] = tokens_BL[row, a_B + b_B + 2] = require_id(vocabulary.sep)
    return {
        "token_ids": tokens_BL,
        "attention_mask": mask_BL,
        "token_type_ids": (after_a_BL & mask_BL).astype(np.int32),
    }


def truncate_pairs(
    a_B: np.ndarray, b_B: np.ndarray, width: int, key_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cut pairs of segments of a and b tokens to `width` tokens in total.

    As in Devlin et al.'s code, the longer segment (the second, if they are equal) loses one token
    until the pair fits, each time from its beginning or its end by the toss of a coin.

    Returns:
      Tokens lost at A's beginning, rest of A, tokens lost at B's beginning, rest of B: int64 [B].
    """
    excess_B = np.maximum(a_B + b_B - width, 0)
    lead_B = a_B - b_B
    # First the longer segment alone, then both in turns, beginning with B.
    single_B = np.minimum(np.abs(lead_B), excess_B)
    turns_B = excess_B - single_B
    drop_a_B = np.where(lead_B > 0, single_B, 0) + turns_B // 2
    drop_b_B = excess_B - drop_a_B
    front_a_B = count_heads(drop_a_B, key_B, hashing.COINS_A)
    front_b_B = count_heads(drop_b_B, key_B, hashing.COINS_B)
    return front_a_B, a_B - drop_a_B, front_b_B, b_B - drop_b_B


def count_heads(tosses_B: np.ndarray, key_B: np.ndarray, use: int) -> np.ndarray:
    """Draw how often a coin shows heads in each of the given numbers of tosses: int64 [B].

    use: what the draws are for, one of the constants of `data.rows.hashing`.
    """
    most = int(tosses_B.max(initial=0))
    if most == 0:
        return np.zeros_like(tosses_B)
    bits_BW = hashing.draw_uint64(hashing.derive_keys(key_B, use), -(-most // 64)).astype(
        "<u8", copy=False
    )
    bits_BN = np.unpackbits(bits_BW.view(np.uint8), axis=1, count=most)
    return (bits_BN & (np.arange(most) < tosses_B[:, None])).sum(axis=1, dtype=np.int64)
