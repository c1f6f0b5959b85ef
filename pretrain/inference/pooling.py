"""From the hidden states of a row's pieces to what is written: a weighted mean each, and where in the text it belongs.

N texts   R results of a row   L pieces of a row   W words of all texts   T pieces of all texts
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Pooling(NamedTuple):
    """count: how many results a row has. most: the most that a row of L pieces can have. weights: float32 [R, L], of the row's pieces.

    alignment: further arrays of the output, from all rows and the number of results up to and including each.
    """

    count: Callable
    most: Callable
    weights: Callable
    alignment: Callable


def _cls(row):
    return np.eye(1, len(row.ids), dtype=np.float32)


def _mean(row):
    own_L = np.array(row.word_of) >= 0
    return (own_L / own_L.sum(dtype=np.float32)).astype(np.float32)[None]


def _word_mean(row):
    of_word_RL = _of_word(row)
    return (of_word_RL / np.maximum(of_word_RL.sum(axis=1, keepdims=True), 1)).astype(np.float32)


def _first(row):
    of_word_RL = _of_word(row)
    return (of_word_RL & (np.cumsum(of_word_RL, axis=1) == 1)).astype(np.float32)


def _of_word(row):
    return np.array(row.word_of) == np.arange(len(row.words))[:, None]


def _pieces(row):
    return np.eye(len(row.ids), dtype=np.float32)


def _of_texts(rows, ends):
    return {}


def _offsets(ends):
    return np.concatenate([[0], ends]).astype(np.int64)


def _of_words(rows, ends):
    return {
        "offsets": _offsets(ends),
        "spans": np.array([span for row in rows for span in row.words], np.int32),
    }


def _of_pieces(rows, ends):
    each = {
        "spans": [row.spans for row in rows],
        "ids": [row.ids for row in rows],
        "word": [row.word_of for row in rows],
    }
    return {"offsets": _offsets(ends)} | {
        name: np.concatenate([np.array(part, np.int32) for part in parts])
        for name, parts in each.items()
    }


POOLINGS = {
    "cls": Pooling(lambda row: 1, lambda L: 1, _cls, _of_texts),
    "mean": Pooling(lambda row: 1, lambda L: 1, _mean, _of_texts),
    "word": Pooling(lambda row: len(row.words), lambda L: L, _first, _of_words),
    "word_mean": Pooling(lambda row: len(row.words), lambda L: L, _word_mean, _of_words),
    "none": Pooling(lambda row: len(row.ids), lambda L: L, _pieces, _of_pieces),
}
