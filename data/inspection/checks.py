"""Checks of what a batch guarantees, and helpers that build the usual kinds of checks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, SupportsInt

import numpy as np

from data.batch_spec import SpecifiedObjective
from data.rows.tables import Batch
from data.store.split import Split
from data.vocabulary.base import Vocabulary

MAX_SIGMAS = 5  # a correct share deviates more than this in one of two million inspections


@dataclass(frozen=True)
class Check:
    """One guarantee: the value seen, the value expected, and whether they agree."""

    name: str
    passed: bool
    seen: str
    expected: str


class InspectedBatch(NamedTuple):
    """A batch, the rows of the table that it was built from, and the keys of their draws."""

    batch: Batch
    row_B: np.ndarray
    key_B: np.ndarray


class RowStream(Protocol):
    """The part of `data.pipeline.Stream` that inspection reads.

    objective: the objective of the batches.
    table: the objective's table of rows.
    data: the `data.config.Data` of the run.
    restore: see `data.source.RowSet`.
    """

    objective: Any
    table: Any
    data: Any
    split: Split
    vocabulary: Vocabulary
    restore: Callable[[Batch, np.ndarray, np.ndarray], Batch] | None

    def build_batch(self, step: int, lo: int = 0, hi: int | None = None) -> Batch: ...
    def locate_rows(self, step: Any) -> Any: ...

    def draw_keys(self, position_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class InspectableObjective(SpecifiedObjective, Protocol):
    """The methods of an objective that a report calls."""

    def measure_batches(
        self, stream: Any, batches: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
    ) -> list[Check]: ...
    def render_row(self, stream: Any, inspected: InspectedBatch, i: int) -> dict[str, Any]: ...


def check_special_ids(
    vocabulary: Vocabulary, token_id: Callable[[str], int | None], *roles: str
) -> Check:
    """Check that the special ids of these roles are the same in the tokenizer."""
    ours = {vocabulary.pieces[i]: i for i in (getattr(vocabulary, role) for role in roles)}
    theirs = {piece: token_id(piece) for piece in ours}
    return Check(
        "special ids are the tokenizer's", ours == theirs, format_ids(ours), format_ids(theirs)
    )


def format_ids(ids: dict[str, Any]) -> str:
    """Format {piece: id} as text."""
    return ", ".join(f"{piece} {i}" for piece, i in ids.items())


def format_ends(ids: Sequence[Any]) -> str:
    """Format the first and the last of some ids."""
    return f"{ids[0]} ... {ids[-1]}"


def check_share(name: str, hits: int, of: int, share: float) -> Check:
    """Check that the share of hits among random draws is within its binomial spread."""
    spread = MAX_SIGMAS * math.sqrt(share * (1 - share) / max(of, 1))
    measured = hits / max(of, 1)
    return Check(
        name,
        bool(of > 0 and abs(measured - share) <= spread),
        f"{measured:.4f}",
        f"{share:.4f} ± {spread:.4f}",
    )


def check_absence(name: str, count: SupportsInt) -> Check:
    """Check that something never occurs."""
    return Check(name, int(count) == 0, f"{count:,}", "0")
