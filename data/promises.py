"""A promise of an objective, and what was measured of it: what `data/inspect.py` and `data/inspect_rows.py` are written with."""

import math
from dataclasses import dataclass

import numpy as np

SIGMAS = 5  # a sound share lies farther off in one of two million inspections


@dataclass(frozen=True)
class Check:
    """A promise: what was seen, what was expected, and whether it held."""

    name: str
    passed: bool
    seen: str
    expected: str


@dataclass(frozen=True)
class Seen:
    """A batch, the rows of the table that it was made of, and the keys of their draws."""

    batch: dict
    row_B: np.ndarray
    key_B: np.ndarray


def within(name, hits, of, share):
    """A share of random draws, held against its binomial spread."""
    spread = SIGMAS * math.sqrt(share * (1 - share) / max(of, 1))
    seen = hits / max(of, 1)
    return Check(name, bool(of > 0 and abs(seen - share) <= spread), f"{seen:.4f}", f"{share:.4f} ± {spread:.4f}")


def none(name, count):
    return Check(name, int(count) == 0, f"{count:,}", "0")


def originals(batch):
    """The ids of a masked batch with the masks taken out again: [B, L]."""
    text_BL = batch["tokens"].copy()
    row, slot = np.nonzero(batch["weights"])
    text_BL[row, batch["positions"][row, slot]] = batch["targets"][row, slot]
    return text_BL
