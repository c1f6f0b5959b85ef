"""Pooling of the hidden states of a row's pieces: weighted means, and their places in the text.

N texts   R results of a row   L pieces of a row   W words of all texts   T pieces of all texts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pretrain.inference.word_alignment import AlignedRow


class Pooling(NamedTuple):
    """A kind of pooling.

    Attributes:
      count_results: row -> its number of results.
      max_results: L -> the largest number of results of a row of L pieces.
      make_weights: row -> float32 [R, L], the weights of its pieces in each result.
      align_results: (rows, ends) -> further arrays of the output; ends [N] counts the results up
        to and including each row.
    """

    count_results: Callable[[AlignedRow], int]
    max_results: Callable[[int], int]
    make_weights: Callable[[AlignedRow], np.ndarray]
    align_results: Callable[[Sequence[AlignedRow], np.ndarray], dict[str, np.ndarray]]


def _weigh_cls(row: AlignedRow) -> np.ndarray:
    """Return the weights that select the [CLS]: the first piece, or the last after a word."""
    position = 0 if row.word_of[0] < 0 else len(row.ids) - 1
    return np.eye(1, len(row.ids), position, dtype=np.float32)


def _weigh_mean_all(row: AlignedRow) -> np.ndarray:
    """Return the weights of the mean of all pieces, special ones included."""
    return np.full((1, len(row.ids)), 1 / len(row.ids), np.float32)


def _weigh_mean(row: AlignedRow) -> np.ndarray:
    """Return the weights of the mean of all pieces that are not special."""
    own_L = np.array(row.word_of) >= 0
    return (own_L / own_L.sum(dtype=np.float32)).astype(np.float32)[None]


def _weigh_word_mean(row: AlignedRow) -> np.ndarray:
    """Return the weights of the mean of each word's pieces."""
    of_word_RL = _match_words(row)
    return (of_word_RL / np.maximum(of_word_RL.sum(axis=1, keepdims=True), 1)).astype(np.float32)


def _weigh_first(row: AlignedRow) -> np.ndarray:
    """Return the weights that select the first piece of each word."""
    of_word_RL = _match_words(row)
    return (of_word_RL & (np.cumsum(of_word_RL, axis=1) == 1)).astype(np.float32)


def _match_words(row: AlignedRow) -> np.ndarray:
    """Return bool [R, L], whether a piece belongs to a word."""
    return np.array(row.word_of) == np.arange(len(row.words))[:, None]


def _weigh_pieces(row: AlignedRow) -> np.ndarray:
    """Return the weights that select each piece."""
    return np.eye(len(row.ids), dtype=np.float32)


def _align_texts(rows: Sequence[AlignedRow], ends: np.ndarray) -> dict[str, np.ndarray]:
    """Return no arrays: there is one result for each text."""
    return {}


def _make_offsets(ends: np.ndarray) -> np.ndarray:
    """Return int64 [N + 1], the index of each text's first result, and the number of results."""
    return np.concatenate([[0], ends]).astype(np.int64)


def _align_words(rows: Sequence[AlignedRow], ends: np.ndarray) -> dict[str, np.ndarray]:
    """Return the offsets [N + 1] of texts, and the spans [W, 2] of words in characters."""
    return {
        "offsets": _make_offsets(ends),
        "spans": np.array([span for row in rows for span in row.words], np.int32),
    }


def _align_pieces(rows: Sequence[AlignedRow], ends: np.ndarray) -> dict[str, np.ndarray]:
    """Return the offsets [N + 1] of texts, and spans [T, 2], ids [T] and words [T] of pieces."""
    columns = {
        "spans": [row.spans for row in rows],
        "ids": [row.ids for row in rows],
        "word": [row.word_of for row in rows],
    }
    return {"offsets": _make_offsets(ends)} | {
        name: np.concatenate([np.array(values, np.int32) for values in column])
        for name, column in columns.items()
    }


POOLINGS = {
    "cls": Pooling(lambda row: 1, lambda L: 1, _weigh_cls, _align_texts),
    "mean": Pooling(lambda row: 1, lambda L: 1, _weigh_mean, _align_texts),
    "mean_all": Pooling(lambda row: 1, lambda L: 1, _weigh_mean_all, _align_texts),
    "word": Pooling(lambda row: len(row.words), lambda L: L, _weigh_first, _align_words),
    "word_mean": Pooling(lambda row: len(row.words), lambda L: L, _weigh_word_mean, _align_words),
    "none": Pooling(lambda row: len(row.ids), lambda L: L, _weigh_pieces, _align_pieces),
}
