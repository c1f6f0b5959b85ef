"""Rows of several pieces of documents, each as if it were alone: [CLS] piece [SEP] [CLS] piece [SEP] ..., and then padding.

Krell et al. (2021, "Efficient Sequence Packing without Cross-contamination", SPFHP): which lengths share a row is decided on the
histogram of lengths, from the longest to the shortest, each going into the rows that are the shortest so far. So a recipe, such as
"64 + 40 + 24", is found once for all of its rows, and tens of millions of pieces take little longer than thousands. The authors' code
opens a row of its own for each piece that fits nowhere; here such pieces share new rows, as in the walk piece by piece that it speeds up.

A piece is a row of `data.rows.tables.DocumentRows`. As there, rows are fixed when the store is opened, so that row r is a table look-up.

B rows   L row length   N size of a piece, [CLS] and [SEP] included   P pieces of the rows at hand   Q pieces   G recipes   S slots of all recipes
"""

import numpy as np

from data.rows.tables import DocumentRows

FRAME = 2  # [CLS] and [SEP], which each piece has


class PackedRows:
    """Rows of at most `length` tokens; each piece of each document is in one of them, once an epoch."""

    def __init__(self, split, length):
        pieces, self.length = DocumentRows(split, length - FRAME), length
        size_Q, start_Q = sizes(pieces), starts(pieces)
        self.start_Q = np.empty(
            len(size_Q), np.int64 if pieces.starts_D[-1] >= 2**32 else np.uint32
        )  # by size: a recipe takes runs of pieces
        rows_G, slots_G, first_S, size_S, offsets = [], [], [], [], [0]
        for low, high in zip(pieces.offsets.tolist(), pieces.offsets[1:].tolist()):
            self.start_Q[low:high] = start_Q[low:high][np.argsort(size_Q[low:high], kind="stable")]
            count_N = np.bincount(size_Q[low:high], minlength=length + 1)
            free_N = (
                low + np.cumsum(count_N) - count_N
            )  # the first piece of each size that has no row yet
            made = recipes(count_N.tolist(), length)
            for rows, parts in made:
                rows_G.append(rows)
                slots_G.append(len(parts))
                for size in parts:
                    first_S.append(free_N[size])
                    free_N[size] += rows
                size_S.extend(parts)
            offsets.append(offsets[-1] + sum(rows for rows, _ in made))
        self.offsets, self.count = np.array(offsets, np.int64), offsets[-1]
        self.first_row_G, self.first_slot_G = (
            np.concatenate([[0], np.cumsum(x, dtype=np.int64)]) for x in (rows_G, slots_G)
        )
        self.first_S = np.array(
            first_S, np.int64
        )  # of each slot, the place in start_Q of its piece in the recipe's first row
        self.size_S = np.array(size_S, np.int64)

    def spans(self, row_B):
        """Of each piece of the rows: (its row's place in row_B, its first token, its number of tokens, where its [CLS] stands): int64 [P].

        The pieces of a row stand one behind the other, as the rows do.
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
        at_P = np.cumsum(size_P) - size_P
        return row_P, start_P, size_P - FRAME, at_P - at_P[before_B][row_P]


def starts(pieces):
    """The first token of each row of DocumentRows: int64 [Q]. A search for each would take most of the time of a batch of short pieces."""
    start_Q = np.repeat(
        pieces.starts_D[:-1] - pieces.first_row_D[:-1] * pieces.width, np.diff(pieces.first_row_D)
    )
    start_Q += np.arange(0, len(start_Q) * pieces.width, pieces.width)
    return start_Q


def sizes(pieces):
    """The size of each row of DocumentRows, with its [CLS] and [SEP]: uint16 [Q] where that is enough, so that sorting is linear."""
    rows_D, tokens_D = np.diff(pieces.first_row_D), np.diff(pieces.starts_D)
    filled_D = rows_D > 0
    full = pieces.width + FRAME
    size_Q = np.full(pieces.count, full, np.uint16 if full < 2**16 else np.int64)
    last_D = pieces.first_row_D[1:][filled_D] - 1
    size_Q[last_D] = tokens_D[filled_D] - (rows_D[filled_D] - 1) * pieces.width + FRAME
    return size_Q


def recipes(count_N, width):
    """[(number of rows, the sizes of their pieces)], which use up count_N[n] pieces of each size n; a row holds `width` at most."""
    open_by_room = [[] for _ in range(width + 1)]  # recipes by the room that is left in their rows
    for size in range(width, 0, -1):
        left, room = count_N[size], width
        while left and room >= size:
            if not open_by_room[room]:
                room -= 1
                continue
            rows, parts = open_by_room[room].pop()
            taken = min(rows, left)
            if rows > taken:
                open_by_room[room].append((rows - taken, parts))
            open_by_room[room - size].append((taken, (*parts, size)))
            left -= taken
        most = width // size
        for rows, parts in (
            (left // most, most),
            (1, left % most),
        ):  # new rows, the last of them with what remains
            if rows and parts:
                open_by_room[width - parts * size].append((rows, (size,) * parts))
    return [recipe for made in open_by_room for recipe in made]


def laid_out(table, read, row_B, vocabulary):
    """{"token_ids", "attention_mask", "segment_ids"} [B, L] of rows: "segment_ids" counts them from 1 in each row, and is 0 on padding."""
    row_P, start_P, length_P, at_P = table.spans(row_B)
    shape = B, L = len(row_B), table.length
    begin_P = row_P * L + at_P  # places in the flattened rows
    last_P, width_P = (
        begin_P + length_P + 1,
        np.append(begin_P[1:], B * L) - begin_P,
    )  # a row's padding goes with its last piece
    index_BL = np.repeat(start_P - at_P - 1, width_P).reshape(shape)
    index_BL += np.arange(L)
    tokens_BL = read(index_BL).astype(np.int32)
    np.put(tokens_BL, begin_P, vocabulary.cls)
    np.put(tokens_BL, last_P, vocabulary.sep)
    first_B = np.flatnonzero(at_P == 0)  # the place of each row's first piece
    number_P = np.arange(1, len(row_P) + 1) - first_B[row_P]
    pieces_BL, valid_BL = (
        np.repeat(number_P.astype(np.int32), width_P).reshape(shape),
        np.ones(shape, bool),
    )
    used_B = last_P[np.append(first_B[1:], len(row_P)) - 1] + 1 - np.arange(B) * L
    row_R = np.flatnonzero(used_B < L)  # few, as a rule
    padding_RL = np.arange(L) >= used_B[row_R, None]
    for array_BL, value in ((tokens_BL, vocabulary.pad), (valid_BL, False), (pieces_BL, 0)):
        array_BL[row_R] = np.where(padding_RL, value, array_BL[row_R])
    return {"token_ids": tokens_BL, "attention_mask": valid_BL, "segment_ids": pieces_BL}
