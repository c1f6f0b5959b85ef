"""The gaps of a row and a model's predictions for them, in readable form (docs/inside.md).

L row length   T targets of a row
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from data.rows.tables import Batch
from data.vocabulary.base import Vocabulary

MAX_PIECES = 64  # largest number of pieces of a row, from its beginning
MAX_FOLLOWING = 16  # pieces that follow a text, where these are the gap
MAX_TARGETS = 48  # targets of a row for which predictions are computed
MAX_GAPS = 8  # largest number of gaps of a row


class Gapped(NamedTuple):
    """A text with gaps.

    ids: the text's pieces, gaps included.
    gaps: for each gap, where it begins in `ids`, and the range [begin, end) of its targets.
    """

    ids: list[int]
    gaps: list[tuple[int, int, int]]


def find_masks(row: Batch, vocabulary: Vocabulary) -> Gapped:
    """Return a row with a gap at each masked piece; the text ends before the first excess gap."""
    weighted, ids, gaps = row["label_weights"] > 0, [], []
    positions = row["masked_positions"][weighted].tolist()
    number = dict(zip(positions, np.flatnonzero(weighted).tolist()))
    for position, piece in enumerate(row["token_ids"][:MAX_PIECES].tolist()):
        if position in number and len(gaps) == MAX_GAPS:
            break
        if position in number:
            gaps.append((len(ids), number[position], number[position] + 1))
            ids.append(int(row["labels"][number[position]]))
        elif is_text(vocabulary, piece):
            ids.append(piece)
    return Gapped(ids, gaps)


def find_shifted_masks(row: Batch, vocabulary: Vocabulary) -> Gapped:
    """Return a row whose masked pieces are predicted one position before; see `find_masks`."""
    return find_masks(row | {"masked_positions": row["masked_positions"] + 1}, vocabulary)


def find_spans(row: Batch, vocabulary: Vocabulary) -> Gapped:
    """Return a row with a gap at each span that a sentinel replaces, as in T5."""
    targets = row["labels"].tolist()
    heads = [t for t, piece in enumerate(targets) if piece in vocabulary.sentinels]
    ends = [*heads[1:], int(np.flatnonzero(row["label_weights"])[-1])]  # the last target is </s>
    ranges = {
        targets[head]: (head + 1, end)
        for head, end in zip(heads[:MAX_GAPS], ends)
        if end <= MAX_TARGETS
    }
    ids, gaps = [], []
    for piece in row["encoder_token_ids"][:MAX_PIECES].tolist():
        if piece in ranges:
            gaps.append((len(ids), *ranges[piece]))
            ids += targets[slice(*ranges[piece])]
        elif piece in vocabulary.sentinels and piece in targets:
            break
        elif is_text(vocabulary, piece):
            ids.append(piece)
    return Gapped(ids, gaps)


def find_continuation(row: Batch, vocabulary: Vocabulary) -> Gapped:
    """Return the first pieces of a row with one gap: the pieces that follow them."""
    tokens, targets = row["token_ids"].tolist(), row["labels"].tolist()
    end = min(MAX_TARGETS, len(targets))
    begin = end - min(MAX_FOLLOWING, end // 2)
    return Gapped(tokens[: begin + 1] + targets[begin:end], [(begin + 1, begin, end)])


# Keys are the `gaps` of an objective. Other objectives are scored by their task, or have no gaps.
READERS: dict[str, Callable[[Batch, Vocabulary], Gapped]] = {
    "masks": find_masks,
    "masks_ahead": find_shifted_masks,
    "spans": find_spans,
    "following": find_continuation,
}


class GapReader:
    """Reads the gaps of an objective's rows and describes a model's predictions for them.

    num_ids: number of ids of the rows' vocabulary.
    """

    def __init__(self, kind: str, stream: Any) -> None:
        """Read the rows of a `data.pipeline.Stream`; `kind` is a key of `READERS`."""
        self.find_gaps, self.vocabulary = READERS[kind], stream.vocabulary
        self.num_ids = stream.vocabulary.size

    def read_gaps(self, row: Batch) -> Gapped:
        """Return the `Gapped` of a row, whose arrays have no axis of rows."""
        return self.find_gaps(row, self.vocabulary)

    def describe_row(
        self, gapped: Gapped, id_T: np.ndarray, probability_T: np.ndarray
    ) -> dict[str, Any]:
        """Return {"text", "gaps"} of a row; see `describe_gaps`."""
        return describe_gaps(self.vocabulary, gapped, id_T, probability_T)


def is_text(vocabulary: Vocabulary, piece: int) -> bool:
    """Return whether a piece stands for text, not for the row's format."""
    return piece < vocabulary.size and (not vocabulary.special[piece] or piece == vocabulary.unk)


def describe_gaps(
    vocabulary: Vocabulary, gapped: Gapped, id_T: np.ndarray, probability_T: np.ndarray
) -> dict[str, Any]:
    """Return {"text", "gaps"} of a row, in the format of the samples file.

    A probability of a diverged model, which is not a number, is None.

    Args:
      id_T: the most probable id of each target.
      probability_T: the probability of that id.
    """
    ids, text, gaps, last_end = gapped.ids, [], [], 0
    for start, begin, end in gapped.gaps:
        text.append(decode_stretch(vocabulary, ids[:last_end], ids[last_end:start]))
        last_end = start + end - begin
        pieces = {"target": ids[start:last_end], "prediction": id_T[begin:end].tolist()}
        texts = {
            name: decode_continuation(vocabulary, ids[:start], own) for name, own in pieces.items()
        }
        probability = round(math.prod(probability_T[begin:end].tolist()), 4)
        gaps.append(texts | {"probability": probability if math.isfinite(probability) else None})
    return {
        "text": [*text, decode_stretch(vocabulary, ids[:last_end], ids[last_end:])],
        "gaps": gaps,
    }


def decode_stretch(vocabulary: Vocabulary, before: Sequence[int], ids: Sequence[int]) -> str:
    """Return the text between two gaps; blanks alone become one blank."""
    if ids and all(map(vocabulary.is_blank, ids)):
        return " "
    return decode_continuation(vocabulary, before, ids)


def decode_continuation(vocabulary: Vocabulary, before: Sequence[int], ids: Sequence[int]) -> str:
    """Return the text that pieces add to the text of the pieces before them, blanks included.

    Where that is nothing, return the tokens as `Vocabulary.format_token` shows them.
    """
    known, whole = vocabulary.decode(before), vocabulary.decode([*before, *ids])
    shared = os.path.commonprefix([known, whole])  # noqa: RUF071 - characters, not folders
    text = whole[len(shared) :]
    return text if text.strip() or not ids else " ".join(map(vocabulary.format_token, ids))
