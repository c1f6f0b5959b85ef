"""The gaps of a row, and what a model says there, as a person reads them (docs/inside.md).

L row length   T targets of a row
"""

import math
import os
from typing import NamedTuple

import numpy as np

PIECES = 64  # of a row, from its beginning, at most
FOLLOWING = 16  # pieces that follow a text, where these are told
TARGETS = 48  # of a row, that are computed
GAPS = 8  # of a row, that are told of, at most


class Gapped(NamedTuple):
    """A text with gaps. ids: its pieces, the gaps closed; gaps: for each (where it begins in ids, its targets [begin, end) by number)."""

    ids: list[int]
    gaps: list[tuple[int, int, int]]


def masks(row, vocabulary):
    """Each masked piece is a gap; the text ends before the first that is not told of."""
    told, ids, gaps = row["label_weights"] > 0, [], []
    number = dict(zip(row["masked_positions"][told].tolist(), np.flatnonzero(told).tolist()))
    for place, piece in enumerate(row["token_ids"][:PIECES].tolist()):
        if place in number and len(gaps) == GAPS:
            break
        if place in number:
            gaps.append((len(ids), number[place], number[place] + 1))
            ids.append(int(row["labels"][number[place]]))
        elif is_text(vocabulary, piece):
            ids.append(piece)
    return Gapped(ids, gaps)


def masks_ahead(row, vocabulary):
    """The same of rows whose masked pieces are predicted at the positions before them."""
    return masks(row | {"masked_positions": row["masked_positions"] + 1}, vocabulary)


def spans(row, vocabulary):
    """Each span behind its sentinel is a gap: T5's."""
    targets = row["labels"].tolist()
    heads = [t for t, piece in enumerate(targets) if piece in vocabulary.sentinels]
    ends = [*heads[1:], int(np.flatnonzero(row["label_weights"])[-1])]  # the last target is </s>
    spans = {
        targets[head]: (head + 1, end) for head, end in zip(heads[:GAPS], ends) if end <= TARGETS
    }
    ids, gaps = [], []
    for piece in row["encoder_token_ids"][:PIECES].tolist():
        if piece in spans:
            gaps.append((len(ids), *spans[piece]))
            ids += targets[slice(*spans[piece])]
        elif piece in vocabulary.sentinels and piece in targets:
            break
        elif is_text(vocabulary, piece):
            ids.append(piece)
    return Gapped(ids, gaps)


def following(row, vocabulary):
    """What follows the first pieces of a row is its gap."""
    tokens, targets = row["token_ids"].tolist(), row["labels"].tolist()
    end = min(TARGETS, len(targets))
    begin = end - min(FOLLOWING, end // 2)
    return Gapped(tokens[: begin + 1] + targets[begin:end], [(begin + 1, begin, end)])


# By `gaps` of an objective; others are scored by what they are for, or have no gaps.
READERS = {"masks": masks, "masks_ahead": masks_ahead, "spans": spans, "following": following}


class GapReader:
    """Reads the gaps of an objective's rows and spells out what is said in them. ids: how many ids the rows' vocabulary has."""

    def __init__(self, kind, stream):
        """kind: one of `READERS`. stream: the `data.pipeline.Stream` of the rows."""
        self.find, self.vocabulary, self.ids = (
            READERS[kind],
            stream.vocabulary,
            stream.vocabulary.size,
        )

    def read(self, row):
        """Return the `Gapped` of a row, {key: array} without the axis of rows."""
        return self.find(row, self.vocabulary)

    def describe(self, gapped, id_T, chance_T):
        """Return {"text", "gaps"} of a row: see `told`."""
        return told(self.vocabulary, gapped, id_T, chance_T)


def is_text(vocabulary, piece):
    """Whether a piece stands for text, and not for the row's form."""
    return piece < vocabulary.size and (not vocabulary.special[piece] or piece == vocabulary.unk)


def told(vocabulary, gapped, id_T, chance_T):
    """{"text", "gaps"} of a row, as a line of the file has it; id_T, chance_T: what the model finds likeliest for each target, and how likely."""
    ids, text, gaps, behind = gapped.ids, [], [], 0
    for at, begin, end in gapped.gaps:
        text.append(added(vocabulary, ids[:behind], ids[behind:at]))
        behind = at + end - begin
        one = {"right": ids[at:behind], "told": id_T[begin:end].tolist()}
        words = {name: added(vocabulary, ids[:at], own) for name, own in one.items()}
        gaps.append(words | {"probability": round(math.prod(chance_T[begin:end].tolist()), 4)})
    return {"text": [*text, added(vocabulary, ids[:behind], ids[behind:])], "gaps": gaps}


def added(vocabulary, before, ids):
    """What pieces add to the text of those before them, its blanks included; their names where that is nothing."""
    known, whole = vocabulary.decode(before), vocabulary.decode([*before, *ids])
    shared = os.path.commonprefix([known, whole])  # noqa: RUF071 - characters, not folders
    text = whole[len(shared) :]
    return text if text.strip() or not ids else " ".join(vocabulary.pieces[i] for i in ids)
