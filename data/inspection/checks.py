"""A promise that a batch must hold, and the few forms that such promises have."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SIGMAS = 5  # a sound share lies farther off in one of two million inspections


@dataclass(frozen=True)
class Check:
    """A promise: what was seen, what was expected, and whether it held."""

    name: str
    passed: bool
    seen: str
    expected: str


class Seen(NamedTuple):
    """A batch, the rows of the table that it was made of, and the keys of their draws."""

    batch: dict
    row_B: np.ndarray
    key_B: np.ndarray


def specials(vocabulary, token_id, *roles):
    """The ids that rows are built with, against the tokenizer's."""
    ours = {vocabulary.pieces[i]: i for i in (getattr(vocabulary, role) for role in roles)}
    theirs = {piece: token_id(piece) for piece in ours}
    return Check("special ids are the tokenizer's", ours == theirs, listed(ours), listed(theirs))


def listed(ids):
    """{piece: id} in words."""
    return ", ".join(f"{piece} {i}" for piece, i in ids.items())


def ends(ids):
    """First and last of some ids, in words."""
    return f"{ids[0]} ... {ids[-1]}"


def within(name, hits, of, share):
    """A share of random draws, held against its binomial spread."""
    spread = SIGMAS * math.sqrt(share * (1 - share) / max(of, 1))
    seen = hits / max(of, 1)
    return Check(
        name,
        bool(of > 0 and abs(seen - share) <= spread),
        f"{seen:.4f}",
        f"{share:.4f} ± {spread:.4f}",
    )


def none(name, count):
    return Check(name, int(count) == 0, f"{count:,}", "0")
