"""Documents cut into pieces of sentences, and pieces joined to chunks that fill a row.

A *piece* is a sentence, a part of a sentence that is longer than half a row, or half of a document
of one sentence. So two consecutive pieces always fit a chunk, and every chunk of a document of two
tokens or more has at least two pieces (the last chunk is moved back to have them). A true next
segment therefore always exists, and the share of random ones is exact.

D documents that are not empty   Q pieces   C chunks
"""

import numpy as np

# With fewer unfinished documents than this, one walk after the other is faster than all in step.
MIN_LOCKSTEP = 64
PIECE_BLOCK = 1 << 16  # pieces of a long document that are looked at together


def split_pieces(sentences: np.ndarray, starts_D: np.ndarray, most: int) -> tuple[np.ndarray, int]:
    """Cut long sentences evenly into pieces of at most `most` tokens.

    A document of one sentence is cut in two.

    Args:
      sentences: int64, first token of each sentence, and the end; has every document's start.
      starts_D: first token of each document, and the end.
      most: largest number of tokens of a piece.

    Returns:
      pieces_Q: int64 [Q + 1], first token of each piece, and the end.
      number of sentences that are longer than `most`.
    """
    sentences, parts = count_parts(sentences, most)
    length, num_cut = np.diff(sentences), int((parts > 1).sum())
    first_D = np.searchsorted(sentences, starts_D)
    lonely = first_D[:-1][np.diff(first_D) == 1]
    parts[lonely] = np.maximum(parts[lonely], np.minimum(length[lonely], 2))
    return divide_sentences(sentences, parts), num_cut


def count_parts(sentences: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sentences that are not empty, and the number of parts of each.

    Returns:
      int64, first token of each sentence, and the end; int32, the number of parts of at most `most`
      tokens into which each is to be cut.
    """
    length = np.diff(sentences)
    if not length.all():
        sentences = np.append(sentences[:-1][length > 0], sentences[-1])
        length = np.diff(sentences)
    return sentences, np.maximum(-(-length // most), 1).astype(np.int32)


def divide_sentences(sentences: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return the first token of each part of all sentences, and the end.

    The lengths of the parts of a sentence differ by at most one token.
    """
    which = np.flatnonzero(parts > 1)
    if len(which) == 0:
        return sentences
    length = np.diff(sentences)
    more = parts[which] - 1  # cuts inside each of them, numbered from 1
    sentence = np.repeat(which, more)
    number = np.arange(len(sentence)) - np.repeat(np.cumsum(more) - more, more) + 1
    index = np.cumsum(parts, dtype=np.int64)[sentence] - parts[sentence] + number
    pieces_Q = np.append(np.repeat(sentences[:-1], parts), sentences[-1])
    pieces_Q[index] += length[sentence] * number // parts[sentence]
    return pieces_Q


def find_chunks(
    pieces_Q: np.ndarray, first_D: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of chunks of each document [D], and the first piece of each chunk [C].

    A chunk has as many pieces as fit, and begins where the previous one ends; a chunk that would be
    the last piece alone begins one piece earlier. All documents are divided together; the few that
    are much longer than the rest are finished one by one.
    """
    chunks_D = np.zeros(len(first_D) - 1, np.int64)
    active, piece = np.arange(len(chunks_D)), first_D[:-1].copy()
    steps = []
    while len(active) > MIN_LOCKSTEP:
        steps.append((active, piece))
        chunks_D[active] += 1
        piece = find_next_chunk(pieces_Q, piece, first_D[active + 1], width)
        unfinished = piece < first_D[active + 1]
        active, piece = active[unfinished], piece[unfinished]
    walks = [walk_document(pieces_Q, p, first_D[d + 1], width) for d, p in zip(active, piece)]
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


def find_next_chunk(
    pieces_Q: np.ndarray, piece: np.ndarray, end: int | np.ndarray, width: int
) -> np.ndarray:
    """Return the piece after the chunk that begins at each `piece`.

    A chunk ends at the latest with its document, which ends before the piece `end`.
    """
    fits = np.searchsorted(pieces_Q, pieces_Q[piece] + width, side="right") - 1
    return np.minimum(fits, end)


def walk_document(pieces_Q: np.ndarray, piece: int, end: int, width: int) -> list[int]:
    """Return the first pieces of the chunks of one document from `piece` on."""
    first, firsts = int(piece), []
    while first < end:
        low, high = first, min(first + PIECE_BLOCK, int(end))
        hop = find_next_chunk(pieces_Q, np.arange(low, high), end, width).tolist()
        while first < high:
            firsts.append(first)
            first = hop[first - low]
    return firsts
