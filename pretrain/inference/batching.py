"""Rows of different lengths as batches of few shapes: few are compiled, and little padding is computed.

B batch   L row length
"""

import contextlib
import contextvars

import jax.numpy as jnp
import numpy as np

SHORTEST = 16  # rows are padded to powers of two, and at least to this


def named(places):
    return [place or f"text {number}" for number, place in enumerate(places, 1)]


def cut(text, length=80):
    return repr(text if len(text) <= length else text[:length] + "…")


def power(number):
    """The least power of two that is not less."""
    return 1 << (number - 1).bit_length()


def padded(length):
    return max(SHORTEST, power(length))


_tell = contextvars.ContextVar("tell", default=lambda share: None)


@contextlib.contextmanager
def watched(tell):
    """While it lasts, tell(share) is called as `batches` gives a batch: with the share of its rows that are done, and with 1 behind the last."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def batches(keys, size):
    """Indices in groups of at most `size` whose keys are equal."""
    order, tell = sorted(range(len(keys)), key=lambda i: keys[i]), _tell.get()
    first = 0
    for i in range(1, len(order) + 1):
        if i == len(order) or i - first == size or keys[order[i]] != keys[order[first]]:
            tell(first / len(order))
            yield order[first:i]
            first = i
    tell(1.0)


def fill(rows, B, L, pad):
    """(ids int32 [B, L], bool [B, L]): rows padded on the right. A row that only fills the batch has one valid id."""
    ids_BL, valid_BL = np.full((B, L), pad, np.int32), np.zeros((B, L), bool)
    for b, row in enumerate(rows):
        ids_BL[b, : len(row)] = row
        valid_BL[b, : len(row)] = True
    valid_BL[len(rows) :, 0] = True
    return jnp.asarray(ids_BL), jnp.asarray(valid_BL)
