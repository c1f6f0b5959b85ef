"""Group documents that agree in a key, directly or through others, and choose which one stays."""

from collections.abc import Iterable, Sequence

import numpy as np


def group_documents(keys: Iterable[Sequence[np.ndarray]], count: int) -> np.ndarray:
    """Return int64 [count]: the first document of the group of each document.

    Args:
      keys: columns of numbers, one for each document; documents that agree in all columns of one
        key are in one group. One key is in memory at a time.
      count: number of documents.
    """
    groups = np.arange(count)
    for columns in keys:
        order = np.lexsort(columns) if len(columns) > 1 else np.argsort(columns[0], kind="stable")
        is_first = np.ones(count, bool)
        if count:
            same = [column[order][1:] == column[order][:-1] for column in columns]
            is_first[1:] = ~np.logical_and.reduce(same)
        first = order[is_first][np.cumsum(is_first) - 1]
        _join_groups(groups, order[~is_first], first[~is_first])
    return _find_roots(groups)


def choose_remaining(groups: np.ndarray, ranks: Sequence[np.ndarray]) -> np.ndarray:
    """Return int64, for each document the one of its group that stays.

    Args:
      groups: the group of each document.
      ranks: columns of numbers; the least document stays, the first column counting most.
    """
    order = np.lexsort([*reversed(ranks), groups])
    is_first = np.ones(len(groups), bool)
    is_first[1:] = groups[order][1:] != groups[order][:-1]
    remaining = np.empty(len(groups), np.int64)
    remaining[order] = order[is_first][np.cumsum(is_first) - 1]
    return remaining


def _join_groups(groups: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Join the groups of pairs of documents, in place: a group refers to a smaller one."""
    while len(left):
        groups[:] = _find_roots(groups)
        low, high = np.minimum(groups[left], groups[right]), np.maximum(groups[left], groups[right])
        differ = low != high
        left, right = low[differ], high[differ]
        groups[right] = left  # one of several; the loop joins the others


def _find_roots(groups: np.ndarray) -> np.ndarray:
    """Return for each document the group that refers to itself."""
    while True:
        further = groups[groups]
        if np.array_equal(further, groups):
            return groups
        groups = further
