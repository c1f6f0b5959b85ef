"""Packed rows of several texts, each separate: [CLS] text [SEP] [CLS] text [SEP] ..., then padding.

Krell et al. (2021, "Efficient Sequence Packing without Cross-contamination", SPFHP): which lengths
share a row is decided on the histogram of lengths, from the longest to the shortest; each goes into
the rows that have the most room left. So a recipe, such as "64 + 40 + 24", is found once for all
of its rows, and tens of millions of texts take little longer than thousands. The authors' code
opens a new row for each text that fits nowhere; here those texts share new rows, as in the plain
worst-fit packing, text by text, that the method speeds up.

A text of a row, or segment, is a row of `data.rows.tables.DocumentRows`. As there, rows are fixed
when the store is opened, so that row r is a table look-up.

B rows   L row length   N size of a segment, [CLS] and [SEP] included   P segments of some rows
Q segments of the split   G recipes   S slots of all recipes   R rows with padding
"""

import numpy as np

from data.rows.tables import Batch, DocumentRows, TokenReader, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary

NUM_FRAME_TOKENS = 2  # [CLS] and [SEP] of each segment


class PackedRows:
    """Rows of at most `length` tokens; each segment of each document is in one row, once an epoch.

    start_Q: first token of each segment, by source and size; a recipe takes runs of segments.
    first_row_G, first_slot_G: number of each recipe's first row and slot, and the end.
    first_S: index into start_Q of each slot's segment in the recipe's first row.
    size_S: size of each slot's segment.
    """

    def __init__(self, split: Split, length: int) -> None:
        pieces, self.length = DocumentRows(split, length - NUM_FRAME_TOKENS), length
        size_Q, start_Q = compute_segment_sizes(pieces), find_segment_starts(pieces)
        start_dtype = np.int64 if pieces.starts_D[-1] >= 2**32 else np.uint32
        self.start_Q = np.empty(len(size_Q), start_dtype)
        rows_G, slots_G, first_S, size_S, offsets = [], [], [], [], [0]
        for low, high in zip(pieces.offsets.tolist(), pieces.offsets[1:].tolist()):
            self.start_Q[low:high] = start_Q[low:high][np.argsort(size_Q[low:high], kind="stable")]
            count_N = np.bincount(size_Q[low:high], minlength=length + 1)
            # The first segment of each size that has no row yet.
            free_N = low + np.cumsum(count_N) - count_N
            recipes = find_recipes(count_N.tolist(), length)
            for num_rows, parts in recipes:
                rows_G.append(num_rows)
                slots_G.append(len(parts))
                for size in parts:
                    first_S.append(free_N[size])
                    free_N[size] += num_rows
                size_S.extend(parts)
            offsets.append(offsets[-1] + sum(num_rows for num_rows, _ in recipes))
        self.offsets, self.count = np.array(offsets, np.int64), offsets[-1]
        self.first_row_G, self.first_slot_G = (
            np.concatenate([[0], np.cumsum(x, dtype=np.int64)]) for x in (rows_G, slots_G)
        )
        self.first_S = np.array(first_S, np.int64)
        self.size_S = np.array(size_S, np.int64)

    def locate_segments(
        self, row_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the segments of rows, in the order of the rows and of their positions.

        Returns:
          row_P: index into row_B of the segment's row.
          start_P: first token of the segment in the store.
          length_P: number of tokens of the segment, without [CLS] and [SEP].
          offset_P: position of the segment's [CLS] in its row.
        """
        recipe_B = np.searchsorted(self.first_row_G, row_B, side="right") - 1
        slots_B = self.first_slot_G[recipe_B + 1] - self.first_slot_G[recipe_B]
        row_P = np.repeat(np.arange(len(row_B)), slots_B)
        before_B = np.cumsum(slots_B) - slots_B
        slot_P = np.arange(len(row_P)) + (self.first_slot_G[recipe_B] - before_B)[row_P]
        start_P = self.start_Q[
            self.first_S[slot_P] + (row_B - self.first_row_G[recipe_B])[row_P]
        ].astype(np.int64)
        size_P = self.size_S[slot_P]
        offset_P = np.cumsum(size_P) - size_P
        return row_P, start_P, size_P - NUM_FRAME_TOKENS, offset_P - offset_P[before_B][row_P]


def find_segment_starts(pieces: DocumentRows) -> np.ndarray:
    """Return the first token of each row of DocumentRows: int64 [Q].

    A search for each would take most of the time of a batch of short segments.
    """
    start_Q = np.repeat(
        pieces.starts_D[:-1] - pieces.first_row_D[:-1] * pieces.width, np.diff(pieces.first_row_D)
    )
    start_Q += np.arange(0, len(start_Q) * pieces.width, pieces.width)
    return start_Q


def compute_segment_sizes(pieces: DocumentRows) -> np.ndarray:
    """Return the size of each row of DocumentRows, with its [CLS] and [SEP]: [Q].

    The dtype is uint16 where that is enough, so that sorting takes linear time.
    """
    rows_D, tokens_D = np.diff(pieces.first_row_D), np.diff(pieces.starts_D)
    filled_D = rows_D > 0
    full = pieces.width + NUM_FRAME_TOKENS
    size_Q = np.full(pieces.count, full, np.uint16 if full < 2**16 else np.int64)
    last_D = pieces.first_row_D[1:][filled_D] - 1
    size_Q[last_D] = tokens_D[filled_D] - (rows_D[filled_D] - 1) * pieces.width + NUM_FRAME_TOKENS
    return size_Q


def find_recipes(count_N: list[int], width: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return [(number of rows, sizes of their segments)], which use up all segments.

    Args:
      count_N: number of segments of each size.
      width: largest size of a row.
    """
    # Recipes by the room that their rows have left.
    open_by_room: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(width + 1)]
    for size in range(width, 0, -1):
        remaining, room = count_N[size], width
        while remaining and room >= size:
            if not open_by_room[room]:
                room -= 1
                continue
            num_rows, parts = open_by_room[room].pop()
            taken = min(num_rows, remaining)
            if num_rows > taken:
                open_by_room[room].append((num_rows - taken, parts))
            open_by_room[room - size].append((taken, (*parts, size)))
            remaining -= taken
        most = width // size
        # New rows; the last of them holds the remainder.
        for num_rows, number in ((remaining // most, most), (1, remaining % most)):
            if num_rows and number:
                open_by_room[width - number * size].append((num_rows, (size,) * number))
    return [recipe for group in open_by_room for recipe in group]


def lay_out_rows(
    table: PackedRows, read: TokenReader, row_B: np.ndarray, vocabulary: Vocabulary
) -> Batch:
    """Return {"token_ids", "attention_mask", "segment_ids"} [B, L] of rows.

    Segment ids count the segments of each row from 1, and are 0 on padding.
    """
    row_P, start_P, length_P, offset_P = table.locate_segments(row_B)
    shape = B, L = len(row_B), table.length
    begin_P = row_P * L + offset_P  # positions in the flattened rows
    last_P = begin_P + length_P + 1
    width_P = np.append(begin_P[1:], B * L) - begin_P  # with the row's padding in its last segment
    index_BL = np.repeat(start_P - offset_P - 1, width_P).reshape(shape)
    index_BL += np.arange(L)
    tokens_BL = read(index_BL).astype(np.int32)
    np.put(tokens_BL, begin_P, require_id(vocabulary.cls))
    np.put(tokens_BL, last_P, require_id(vocabulary.sep))
    first_B = np.flatnonzero(offset_P == 0)  # index of each row's first segment
    number_P = np.arange(1, len(row_P) + 1) - first_B[row_P]
    segments_BL = np.repeat(number_P.astype(np.int32), width_P).reshape(shape)
    mask_BL = np.ones(shape, bool)
    used_B = last_P[np.append(first_B[1:], len(row_P)) - 1] + 1 - np.arange(B) * L
    row_R = np.flatnonzero(used_B < L)  # Most rows are full.
    padding_RL = np.arange(L) >= used_B[row_R, None]
    pad = require_id(vocabulary.pad)
    for array_BL, value in ((tokens_BL, pad), (mask_BL, False), (segments_BL, 0)):
        array_BL[row_R] = np.where(padding_RL, value, array_BL[row_R])
    return {"token_ids": tokens_BL, "attention_mask": mask_BL, "segment_ids": segments_BL}
