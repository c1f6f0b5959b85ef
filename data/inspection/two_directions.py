"""Checks of rows that are read in both directions, from the store's sentences.

N positions   S sentences, and the end
"""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.store.split import Split
from data.vocabulary.base import Vocabulary


def check_neighbours(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check the labels and the text of rows of bidirectional_lm."""
    other_next = other_previous = unweighed = other_text = 0
    split, vocabulary, length = stream.split, stream.vocabulary, stream.objective.length
    starts_S = np.unique(split.sentence_starts)  # Sentences without a word are left out.
    begins_S = starts_S + 2 * np.arange(len(starts_S))
    for inspected in batches:
        batch = inspected.batch
        other_next += (batch["token_ids"][:, 1:] != batch["labels"][:, :-1]).sum()
        previous_BL = batch["backward_labels"][:, 1:]
        other_previous += (batch["backward_ids"][:, :-1] != previous_BL).sum()
        unweighed += (batch["label_weights"] * batch["backward_weights"] != 1).sum()
        for i, start in enumerate(stream.table.locate_starts(inspected.row_B).tolist()):
            forwards, backwards = frame_sentences(
                split, vocabulary, begins_S, start, start + length
            )
            other_text += batch["token_ids"][i].tolist() != forwards
            other_text += batch["backward_ids"][i, ::-1].tolist() != backwards
    return [
        check_absence("targets that are not the next word", other_next),
        check_absence("targets that are not the previous word", other_previous),
        check_absence("words without loss", unweighed),
        check_absence("rows whose text is not the store's", other_text),
        check_special_ids(vocabulary, token_id, "cls", "sep"),
    ]


def frame_sentences(
    split: Split, vocabulary: Vocabulary, begins_S: np.ndarray, begin: int, end: int
) -> tuple[list[int], list[int]]:
    """Return the ids of positions [begin, end) of framed sentences, and of reversed ones."""
    first, last = np.searchsorted(begins_S, begin, "right") - 1, np.searchsorted(begins_S, end)
    starts_S = begins_S[first : last + 1] - 2 * np.arange(first, last + 1)
    forwards, backwards = [], []
    for start, stop in itertools.pairwise(starts_S.tolist()):
        sentence = [vocabulary.cls, *split.tokens[start:stop].tolist(), vocabulary.sep]
        forwards += sentence
        backwards += sentence[::-1]
    places = slice(begin - begins_S[first], end - begins_S[first])
    return forwards[places], backwards[places]
