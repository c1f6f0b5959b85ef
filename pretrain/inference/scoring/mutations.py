"""Log-odds of mutations: how much more probable other letters are than those of the text.

Meier et al. 2021, section 2.2. `masked`: all letters that a mutation changes are masked, and the
log-odds of each add up. `wild_type`: the text is read as it is, once for all mutations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from pretrain.inference.scoring.masked_scorers import MaskedScorer, PackedMaskedScorer
from pretrain.inference.scoring.text_scoring import Text, TextScorer

MASKED, WILD_TYPE = MARGINALS = ("masked", "wild_type")
MOST_PLACES = 1024  # of a row whose logits are computed at once
CHANGE = re.compile(r"(\D)([1-9]\d{0,8})(\D)")


class Mutation(NamedTuple):
    """A mutation such as A23T or A23T:G45V.

    Attributes:
      name: as it is given.
      places: of the changed letters in the text, from 0.
      letters: that come there.
    """

    name: str
    places: tuple[int, ...]
    letters: tuple[str, ...]


def read_mutation(name: str, text: str) -> Mutation:
    """Return a mutation of a text.

    Raises:
      ValueError: it is not written as letter, place, letter; the text has another letter there; or
        a place occurs twice.
    """
    places, letters = [], []
    for change in name.split(":"):
        if not (match := CHANGE.fullmatch(change)):
            raise ValueError(
                f"mutation {name!r}: {change!r} is not the letter of the text, its place from 1, "
                "and the letter that comes there, such as A23T"
            )
        before, place, after = match[1], int(match[2]), match[3]
        if place > len(text):
            raise ValueError(f"mutation {name!r}: the text has {len(text)} letters, not {place}")
        if text[place - 1] != before:
            raise ValueError(
                f"mutation {name!r}: letter {place} of the text is {text[place - 1]!r}, not "
                f"{before!r}"
            )
        places.append(place - 1)
        letters.append(after)
    if len({*places}) < len(places):
        raise ValueError(f"mutation {name!r}: a letter of the text changes twice")
    return Mutation(name, tuple(places), tuple(letters))


def score_mutations(
    scorer: TextScorer, text: Text, names: Sequence[str], marginals: str = MASKED
) -> list[float]:
    """Return the log-odds of mutations of a text, in nats; above 0 the new letters are likelier.

    Args:
      names: of mutations, as `read_mutation` reads them.
      marginals: one of MARGINALS.

    Raises:
      ValueError: the model fills no masks, its tokens are not single letters, or as
        `read_mutation`; begins with the text's place.
    """
    rows_of = scorer.scorer
    if type(rows_of) not in (MaskedScorer, PackedMaskedScorer):
        raise ValueError("mutations are scored by models that fill masks; this one does not")
    encoding = rows_of.tokenizer.encode(text.text)
    ids, vocabulary = list(encoding.ids), scorer.vocabulary
    mask: Any = vocabulary.mask
    scorer.check_length(text, len(ids))
    tokens = {start: i for i, (start, end) in enumerate(encoding.offsets) if end - start == 1}
    changes = [_read_named(text, name) for name in names]
    rows = []
    for change in changes:
        row, positions, targets = list(ids), [], []
        for place, letter in zip(change.places, change.letters, strict=True):
            new = vocabulary.encode(letter)
            if place not in tokens or len(new) != 1 or new[0] == vocabulary.unk:
                raise ValueError(
                    f"{text.place}, mutation {change.name!r}: {text.text[place]!r} or {letter!r} "
                    "is no token of its own in this vocabulary"
                )
            i = tokens[place]
            positions += [i, i]
            targets += [new[0], ids[i]]
            if marginals == MASKED:
                row[i] = mask
        rows.append((row, positions, targets))
    if marginals == WILD_TYPE:
        pairs = [pair for row in rows for pair in zip(row[1], row[2], strict=True)]
        parts = [pairs[i : i + MOST_PLACES] for i in range(0, len(pairs), MOST_PLACES)]
        rows = [(ids, *map(list, zip(*part, strict=True))) for part in parts]
    with jax.set_mesh(scorer.mesh):
        found = [log_p_T for log_p_T, _ in rows_of.score_tokens(rows, scorer.batch_size)]
    log_p = iter([float(one) for log_p_T in found for one in log_p_T])
    return [sum(next(log_p) - next(log_p) for _ in change.places) for change in changes]


def _read_named(text: Text, name: str) -> Mutation:
    """Return `read_mutation`, whose errors begin with the text's place."""
    try:
        return read_mutation(name, text.text)
    except ValueError as error:
        raise ValueError(f"{text.place}, {error}") from error
