"""Sentence pairs: each document cut into chunks of sentences that fill a row, and two segments drawn from a chunk.

Devlin et al. (2018, section 3.1 and appendix A.2) pack sentences one behind the other into a row, cut the row between
two of them, and half of the time replace what follows by the beginning of another place. Their walk over a document
is sequential: what one row leaves over begins the next. Here the chunks are fixed when the store is opened, so that
row r is a table look-up; what a short row, or one with a random second segment, leaves over is seen in other epochs.

A *piece* is a sentence, or part of one that is longer than half a row, or half of a document that is one sentence.
Two pieces in a row therefore always fit a chunk, so that every chunk of a document of two tokens or more has two
pieces (the last one is moved back to have them), and a true next segment is always to be had: the share of random
ones is exact.

B rows   D documents that are not empty   Q pieces   C chunks
"""

import numpy as np

from data.rows import hashing
from data.rows.tables import source_edges

LOCKSTEP = (
    64  # below so many unfinished documents, one walk after the other is faster than all in step
)
BLOCK = 1 << 16  # pieces of a long document that are looked at together


class ChunkRows:
    """The chunks of a split, at most `width` tokens each, and where each is cut in two."""

    def __init__(self, split, width):
        starts = np.asarray(split.document_starts)
        filled = np.diff(starts) > 0
        edges_S = np.concatenate([[0], np.cumsum(filled)])[
            source_edges(split)
        ]  # source limits among those documents
        starts_D = np.append(starts[:-1][filled], starts[-1])
        self.edges_S, self.width = edges_S, width
        self.pieces_Q, self.long_sentences = pieces(
            np.asarray(split.sentence_starts), starts_D, width // 2
        )
        self.first_D = np.searchsorted(self.pieces_Q, starts_D)
        chunks_D, self.chunk_C = chunks(self.pieces_Q, self.first_D, width)
        self.first_chunk_D = np.concatenate([[0], np.cumsum(chunks_D)])
        self.offsets, self.count = self.first_chunk_D[edges_S], len(self.chunk_C)

    def halves(self, row_B, key_B, short):
        """Draw (start_B, length_B) of two segments that follow each other, the length aimed at, and the document.

        `short`: chance that a row aims at a random shorter length. The first segment has a token at least, both have
        `width` together at most; the second has none where the document is a single token.
        """
        bits_NB = hashing.words(hashing.key(key_B, hashing.PAIR), 3).T
        document_B = np.searchsorted(self.first_chunk_D, row_B, side="right") - 1
        low_B = self.chunk_C[row_B]
        start_B = self.pieces_Q[low_B]
        stop_B = self.stop(low_B, self.first_D[document_B + 1], self.width)
        target_B = np.where(
            hashing.chance(bits_NB[0], short),
            2 + hashing.below(bits_NB[1], self.width - 1),
            self.width,
        )  # Devlin et al.: a short row aims at 2 to `width` tokens
        high_B = np.searchsorted(self.pieces_Q, start_B + target_B, side="left")
        high_B = np.minimum(np.maximum(high_B, low_B + 2), stop_B)
        cut_B = low_B + 1 + hashing.below(bits_NB[2], np.maximum(high_B - low_B - 1, 1))
        second_B = self.pieces_Q[cut_B]
        return (
            (start_B, second_B - start_B),
            (second_B, self.pieces_Q[high_B] - second_B),
            target_B,
            document_B,
        )

    def stop(self, low_B, end_B, width):
        """The piece behind the chunk that begins at each piece `low_B` of a document that ends before `end_B`."""
        fits_B = np.searchsorted(self.pieces_Q, self.pieces_Q[low_B] + width, side="right") - 1
        return np.minimum(fits_B, end_B)


class SentencePairRows(ChunkRows):
    """Chunks whose second segment may come from another document."""

    def __init__(self, split, width):
        super().__init__(split, width)
        edges_S = self.edges_S
        if len(self.first_D) <= 2:
            raise ValueError(
                f"{len(self.first_D) - 1} document is all there is, but sentence_pair takes second segments from others: "
                "two documents at least (a file, a blank-line block or a record each: see prepare --help)"
            )
        alone_S = np.diff(edges_S) < 2  # a source of one document draws from the whole split
        self.pool_S = np.where(alone_S, edges_S[0], edges_S[:-1])
        self.documents_S = np.where(alone_S, edges_S[-1] - edges_S[0], np.diff(edges_S))

    def pairs(self, row_B, key_B, short, random_next):
        """Draw (start_B, length_B) of the first and of the second segment, and `other_B`: True for one from elsewhere.

        `short`: chance that a row aims at a random shorter length; `random_next`: chance of a second segment from
        another document of the same source. Segments have at least a token each and `width` together at most.
        """
        (start_B, a_B), (second_B, b_B), target_B, document_B = self.halves(row_B, key_B, short)
        bits_NB = hashing.words(hashing.key(key_B, hashing.PAIR), 6).T[3:]
        other_B = hashing.chance(bits_NB[0], random_next) | (b_B == 0)
        from_B, to_B = self.elsewhere(
            document_B, bits_NB[1], bits_NB[2], np.maximum(target_B - a_B, 1)
        )
        second_B, b_B = np.where(other_B, from_B, second_B), np.where(other_B, to_B - from_B, b_B)
        front_a_B, a_B, front_b_B, b_B = truncate(a_B, b_B, self.width, key_B)
        return (start_B + front_a_B, a_B), (second_B + front_b_B, b_B), other_B

    def elsewhere(self, document_B, which_B, where_B, length_B):
        """Tokens (from, to) from any piece of another document of the source on, `length_B` if it has them."""
        source_B = np.searchsorted(self.edges_S, document_B, side="right") - 1
        first_B, documents_B = self.pool_S[source_B], self.documents_S[source_B]
        step_B = 1 + hashing.below(which_B, documents_B - 1)
        document_B = first_B + (document_B - first_B + step_B) % documents_B
        begin_B, end_B = self.first_D[document_B], self.first_D[document_B + 1]
        piece_B = begin_B + hashing.below(where_B, end_B - begin_B)
        stop_B = np.searchsorted(self.pieces_Q, self.pieces_Q[piece_B] + length_B, side="left")
        return self.pieces_Q[piece_B], self.pieces_Q[np.minimum(stop_B, end_B)]


def laid_out(read, vocabulary, length, first, second):
    """{"token_ids", "attention_mask", "token_type_ids"} [B, L] of rows [CLS] A [SEP] B [SEP]; of each segment (first token [B], number of tokens [B])."""
    (a_start_B, a_B), (b_start_B, b_B) = first, second
    column_L, row = np.arange(length), np.arange(len(a_B))
    behind_a_BL = column_L > a_B[:, None] + 1
    valid_BL = column_L < (a_B + b_B)[:, None] + 3
    tokens_BL = np.empty(valid_BL.shape, np.int32)
    tokens_BL[:, 1:] = read.runs(a_start_B, length - 1)
    np.copyto(tokens_BL, read.runs(b_start_B - a_B - 2, length), where=behind_a_BL)
    np.copyto(tokens_BL, vocabulary.pad, where=~valid_BL)
    tokens_BL[:, 0] = vocabulary.cls
    tokens_BL[row, a_B + 1] = tokens_BL[row, a_B + b_B + 2] = vocabulary.sep
    return {
        "token_ids": tokens_BL,
        "attention_mask": valid_BL,
        "token_type_ids": (behind_a_BL & valid_BL).astype(np.int32),
    }


def pieces(sentences, starts_D, most):
    """(piece starts [Q + 1], number of sentences cut): sentences cut evenly into parts of at most `most` tokens.

    A document that is one sentence is cut in two. sentences: their starts and the end, int64, each document start
    among them.
    """
    sentences, parts = too_long(sentences, most)
    length, cut = np.diff(sentences), int((parts > 1).sum())
    first_D = np.searchsorted(sentences, starts_D)
    lonely = first_D[:-1][np.diff(first_D) == 1]
    parts[lonely] = np.maximum(parts[lonely], np.minimum(length[lonely], 2))
    return divided(sentences, parts), cut


def too_long(sentences, most):
    """(starts of the sentences that are not empty, and the end; into how many parts of at most `most` tokens each is to be cut)."""
    length = np.diff(sentences)
    if not length.all():
        sentences = np.append(sentences[:-1][length > 0], sentences[-1])
        length = np.diff(sentences)
    return sentences, np.maximum(-(-length // most), 1).astype(np.int32)


def divided(sentences, parts):
    """Starts of the parts of all sentences, and the end; the parts of one differ by a token at most."""
    which = np.flatnonzero(parts > 1)
    if len(which) == 0:
        return sentences
    length = np.diff(sentences)
    more = parts[which] - 1  # cuts inside each of them, numbered from 1
    sentence = np.repeat(which, more)
    number = np.arange(len(sentence)) - np.repeat(np.cumsum(more) - more, more) + 1
    place = np.cumsum(parts, dtype=np.int64)[sentence] - parts[sentence] + number
    pieces_Q = np.append(np.repeat(sentences[:-1], parts), sentences[-1])
    pieces_Q[place] += length[sentence] * number // parts[sentence]
    return pieces_Q


def chunks(pieces_Q, first_D, width):
    """(chunks of each document [D], first piece of each chunk [C]): as many pieces as fit, one chunk behind the other.

    A chunk that would be the last piece alone begins one piece earlier. The documents are walked in step, all at once;
    the few that are much longer than the rest are finished one by one.
    """
    chunks_D = np.zeros(len(first_D) - 1, np.int64)
    active, piece = np.arange(len(chunks_D)), first_D[:-1].copy()
    steps = []
    while len(active) > LOCKSTEP:
        steps.append((active, piece))
        chunks_D[active] += 1
        piece = next_chunk(pieces_Q, piece, first_D[active + 1], width)
        going = piece < first_D[active + 1]
        active, piece = active[going], piece[going]
    walks = [walk(pieces_Q, p, first_D[d + 1], width) for d, p in zip(active, piece)]
    walked = chunks_D[active]
    chunks_D[active] += np.array([len(w) for w in walks], np.int64)
    first_chunk_D = np.cumsum(chunks_D) - chunks_D
    chunk_C = np.empty(chunks_D.sum(), np.int64)
    for i, (documents, firsts) in enumerate(steps):
        chunk_C[first_chunk_D[documents] + i] = firsts
    for d, done, firsts in zip(active, walked, walks):
        chunk_C[first_chunk_D[d] + done : first_chunk_D[d] + chunks_D[d]] = firsts
    last_D = first_chunk_D + chunks_D - 1
    back_D = (first_D[1:] - chunk_C[last_D] == 1) & (np.diff(first_D) > 1)
    chunk_C[last_D] -= back_D
    return chunks_D, chunk_C


def next_chunk(pieces_Q, piece, end, width):
    """The piece behind the chunk that begins at each `piece`; a chunk ends with its document."""
    fits = np.searchsorted(pieces_Q, pieces_Q[piece] + width, side="right") - 1
    return np.minimum(fits, end)


def walk(pieces_Q, piece, end, width):
    """First pieces of the chunks of one document from `piece` on: a list."""
    first, firsts = int(piece), []
    while first < end:
        low, high = first, min(first + BLOCK, int(end))
        hop = next_chunk(pieces_Q, np.arange(low, high), end, width).tolist()
        while first < high:
            firsts.append(first)
            first = hop[first - low]
    return firsts


def truncate(a_B, b_B, width, key_B):
    """Cut pairs of a and b tokens to `width`: (cut before A, rest of A, cut before B, rest of B).

    As Devlin et al. do: drop a token of the longer segment (the second, if they are even) until the pair fits,
    each time from its beginning or its end by the toss of a coin.
    """
    excess_B = np.maximum(a_B + b_B - width, 0)
    lead_B = a_B - b_B
    single_B = np.minimum(
        np.abs(lead_B), excess_B
    )  # first the longer one alone, then in turns, beginning with B
    turns_B = excess_B - single_B
    drop_a_B = np.where(lead_B > 0, single_B, 0) + turns_B // 2
    drop_b_B = excess_B - drop_a_B
    front_a_B, front_b_B = (
        heads(drop_a_B, key_B, hashing.COINS_A),
        heads(drop_b_B, key_B, hashing.COINS_B),
    )
    return front_a_B, a_B - drop_a_B, front_b_B, b_B - drop_b_B


def heads(tosses_B, key_B, use):
    """How often a coin shows heads in each of the given numbers of tosses: int64 [B]."""
    most = int(tosses_B.max(initial=0))
    if most == 0:
        return np.zeros_like(tosses_B)
    bits_BW = hashing.words(hashing.key(key_B, use), -(-most // 64)).astype("<u8", copy=False)
    bits_BN = np.unpackbits(bits_BW.view(np.uint8), axis=1, count=most)
    return (bits_BN & (np.arange(most) < tosses_B[:, None])).sum(axis=1, dtype=np.int64)
