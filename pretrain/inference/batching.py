"""Batches of rows of different lengths, in few shapes: little compilation and little padding.

B batch   L row length
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SHORTEST = 16  # [tokens] rows are padded to powers of two, and at least to this


def name_places(places: Sequence[str | None]) -> list[str]:
    """Return the place of each text for errors, "text N" if it has none."""
    return [place or f"text {number}" for number, place in enumerate(places, 1)]


def quote_text(text: str, length: int = 80) -> str:
    """Return a text in quotation marks, cut to `length` characters."""
    return repr(text if len(text) <= length else text[:length] + "…")


def round_up_to_power(number: int) -> int:
    """Return the least power of two that is not less than a number."""
    return 1 << (number - 1).bit_length()


def pad_length(length: int) -> int:
    """Return the length to which a row is padded."""
    return max(SHORTEST, round_up_to_power(length))


_progress_callback: contextvars.ContextVar[Callable[[float], Any]] = contextvars.ContextVar(
    "progress_callback", default=lambda share: None
)


@contextlib.contextmanager
def report_progress(report_share: Callable[[float], Any]) -> Iterator[None]:
    """Report the progress of `make_batches` in the block.

    `report_share` receives the share of rows that are done before each batch, and 1 after the last.
    """
    token = _progress_callback.set(report_share)
    try:
        yield
    finally:
        _progress_callback.reset(token)


def make_batches(keys: Sequence[Any], size: int) -> Iterator[list[int]]:
    """Yield indices in groups of at most `size` whose keys are equal, in the order of the keys."""
    order, report_share = sorted(range(len(keys)), key=lambda i: keys[i]), _progress_callback.get()
    first = 0
    for i in range(1, len(order) + 1):
        if i == len(order) or i - first == size or keys[order[i]] != keys[order[first]]:
            report_share(first / len(order))
            yield order[first:i]
            first = i
    report_share(1.0)


def pad_rows(
    rows: Sequence[Sequence[int]], B: int, L: int, pad: int
) -> tuple[jax.Array, jax.Array]:
    """Return rows padded on the right: int32 ids [B, L], and bool [B, L], True for real ids.

    Rows that only complete the batch have one True id.
    """
    ids_BL, valid_BL = np.full((B, L), pad, np.int32), np.zeros((B, L), bool)
    for b, row in enumerate(rows):
        ids_BL[b, : len(row)] = row
        valid_BL[b, : len(row)] = True
    valid_BL[len(rows) :, 0] = True
    return jnp.asarray(ids_BL), jnp.asarray(valid_BL)
