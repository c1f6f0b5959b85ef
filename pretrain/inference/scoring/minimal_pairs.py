"""Minimal pairs: how often a model finds the better of two texts more probable.

Linzen et al. (2016); Warstadt et al. (2020) count the pairs in which the good text has the higher
log probability. A pair of equal scores is a tie, which counts apart and is never right: a model
that scores all texts alike is right 0 times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pretrain.inference.record_files import check_characters
from pretrain.inference.scoring.text_scoring import Text

# Fields of the two texts that are known, and of what groups them, the first that a record has.
FIELDS = (("good", "bad"), ("sentence_good", "sentence_bad"))
GROUPS = ("group", "UID")
ALL = "all"


class MinimalPair(NamedTuple):
    """Two texts, of which the first is better."""

    good: Text
    bad: Text
    group: str


def find_fields(
    record: Mapping[str, Any], good: str | None, bad: str | None
) -> tuple[str, str] | None:
    """Return the fields of a record's good and bad text; None for a record that is no pair.

    good, bad: their names, where they are given.
    """
    if good and bad:
        return good, bad
    return next((pair for pair in FIELDS if {*pair} <= record.keys()), None)


def make_pair(
    record: Mapping[str, Any], place: str, fields: tuple[str, str], group: str | None
) -> MinimalPair:
    """Return the pair of a record.

    Args:
      fields: of the good and of the bad text.
      group: the field that groups the pairs; None: one of GROUPS, or all pairs are one group.

    Raises:
      ValueError: a field is missing or no text, or both texts are the same; begins with the place.
    """
    for name in (*fields, *([group] if group else [])):
        if not isinstance(record.get(name), str):
            raise ValueError(
                f"{place}: expected the field {name}, a string; this has "
                f"{', '.join(map(repr, record))[:200]}"
            )
        check_characters(record[name], f"{place}: the field {name}")
    if record[fields[0]] == record[fields[1]]:
        raise ValueError(f"{place}: {fields[0]} and {fields[1]} are the same text")
    name = group or next((name for name in GROUPS if isinstance(record.get(name), str)), None)
    good, bad = (Text(f"{place}, {field}", record[field]) for field in fields)
    return MinimalPair(good, bad, record[name] if name else ALL)


class PairCount(NamedTuple):
    """Counts of a group of pairs."""

    pairs: int
    right: int
    ties: int

    @property
    def accuracy(self) -> float:
        """The share of pairs whose good text is more probable."""
        return self.right / self.pairs

    @property
    def standard_error(self) -> float:
        """The standard error of the accuracy, of pairs that are drawn independently."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.pairs)


def count_pairs(
    pairs: Sequence[MinimalPair], scores: Sequence[tuple[float, float]]
) -> dict[str, PairCount]:
    """Return {group: its counts}, by name, and the counts of all pairs last, as ALL.

    Args:
      scores: log probabilities of the good and of the bad text of each pair.
    """
    groups: dict[str, list[int]] = {}
    for pair, (good, bad) in zip(pairs, scores, strict=True):
        counts = groups.setdefault(pair.group, [0, 0, 0])
        for i, counted in enumerate((True, good > bad, good == bad)):
            counts[i] += counted
    found = {name: PairCount(*groups[name]) for name in sorted(groups)}
    total = PairCount(*map(sum, zip(*groups.values(), strict=True)))
    return {name: count for name, count in found.items() if name != ALL} | {ALL: total}


def summarize_counts(counts: Mapping[str, PairCount]) -> dict[str, Any]:
    """Return the JSON value of counts: of all pairs, the mean of the groups, and each group."""
    groups = [count for name, count in counts.items() if name != ALL]
    summary = _describe_count(counts[ALL])
    if groups:
        summary["mean_of_groups"] = sum(count.accuracy for count in groups) / len(groups)
        summary["groups"] = {
            name: _describe_count(count) for name, count in counts.items() if name != ALL
        }
    return summary


def _describe_count(count: PairCount) -> dict[str, Any]:
    """Return the JSON value of one count."""
    return {
        **count._asdict(),
        "accuracy": count.accuracy,
        "standard_error": count.standard_error,
    }


def format_counts(counts: Mapping[str, PairCount]) -> list[str]:
    """Return the lines of a table of counts."""
    width = max(map(len, counts))
    lines = [f"{'':<{width}}  {'accuracy':<14}{'pairs':>9}{'ties':>9}"]
    for name, count in counts.items():
        share = f"{100 * count.accuracy:5.1f} % ± {100 * count.standard_error:<4.1f}"
        lines.append(f"{name:<{width}}  {share}{count.pairs:>9,}{count.ties:>9,}")
    return lines
