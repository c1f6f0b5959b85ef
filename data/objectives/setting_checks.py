"""Checks of an objective's settings against the vocabulary, before any row is built."""

from typing import Any

import numpy as np

from data.vocabulary.base import Vocabulary


def check_masking(
    objective: Any,
    vocabulary: Vocabulary,
    num_text_tokens: int,
    roles: tuple[str, ...] = ("cls", "sep", "mask", "pad"),
) -> None:
    """Raise a ValueError unless the settings can mask rows of text with this vocabulary.

    Args:
      objective: has `mask_rate`, `max_predictions`, `dupe_factor`, `length` and `whole_words`; with
        whole words, it is a `WholeWords`.
    """
    name = objective.name
    rates = {"mask_rate": objective.mask_rate}
    if objective.mask_ramp is not None and not objective.mask_ramp.is_constant:
        rates["mask_ramp.start"] = objective.mask_ramp.start
    for setting, rate in rates.items():
        if not 0 < rate < 1:
            raise ValueError(
                f"{name}: {setting}={rate}; the share of masked tokens must be between 0 and 1"
            )
    if objective.dupe_factor < 0:
        raise ValueError(
            f"{name}: dupe_factor={objective.dupe_factor}; "
            "allowed are 0 (a new mask every epoch) and larger numbers"
        )
    if vocabulary.overlap and not objective.whole_words:
        raise ValueError(
            f"{name}: tokens of the vocabulary overlap, so that the neighbours of a mask give it "
            "away; set data.objective.whole_words=true, which masks runs of "
            f"{vocabulary.overlap} tokens"
        )
    if objective.whole_words and objective.max_word_pieces < 1:
        raise ValueError(
            f"{name}: max_word_pieces={objective.max_word_pieces}; a word has 1 piece or more"
        )
    setting = max(rates, key=lambda setting: rates[setting])  # the slots hold the most masks
    needed = max(int(np.rint(num_text_tokens * rates[setting])), 1)
    if objective.max_predictions < needed:
        raise ValueError(
            f"{name}: max_predictions={objective.max_predictions} is fewer than the {needed} "
            f"tokens that {setting}={rates[setting]} masks in a row of "
            f"length={objective.length}; set max_predictions to {needed} or more, "
            f"or lower {setting}"
        )
    if objective.max_predictions > objective.length:
        raise ValueError(
            f"{name}: max_predictions={objective.max_predictions} "
            f"is more than length={objective.length}"
        )
    check_special_tokens(name, vocabulary, *roles)


def check_masked_pair(objective: Any, vocabulary: Vocabulary, shares: tuple[str, ...]) -> None:
    """Raise a ValueError unless masked rows `[CLS] A [SEP] B [SEP]` are possible.

    shares: names of the objective's fields that are shares of rows.
    """
    if objective.length < 8:
        raise ValueError(
            f"{objective.name}: length={objective.length}; "
            "a row holds [CLS] A [SEP] B [SEP], so at least 8 tokens"
        )
    for name in shares:
        if not 0 <= getattr(objective, name) <= 1:
            raise ValueError(
                f"{objective.name}: {name}={getattr(objective, name)}; "
                "a share of rows must be between 0 and 1"
            )
    check_masking(objective, vocabulary, objective.length - 3)


def check_labelled(objective: Any, vocabulary: Vocabulary) -> None:
    """Raise a ValueError unless rows of labelled texts are possible with this vocabulary.

    objective: has `length`, `separators` and `cls_position`.
    """
    if objective.separators not in (1, 2):
        raise ValueError(
            f"{objective.name}: separators={objective.separators}; "
            "there are one or two [SEP] between two texts"
        )
    if objective.length < 6:
        raise ValueError(
            f"{objective.name}: length={objective.length}; "
            "a row holds [CLS] A [SEP] B [SEP], so at least 6 tokens"
        )
    if objective.cls_position != "none":
        check_special_tokens(objective.name, vocabulary, "cls", "sep", "pad")


def check_special_tokens(name: str, vocabulary: Vocabulary, *specials: str) -> None:
    """Raise a ValueError that lists the special tokens that the vocabulary lacks.

    name: name of the objective that needs them.
    """
    lacking = [special for special in specials if getattr(vocabulary, special) is None]
    if lacking:
        raise ValueError(
            f"{name} needs the special token(s) {', '.join(lacking)}, which the store's vocabulary "
            f"({vocabulary.kind}, {vocabulary.size} ids) does not have; prepare the store with "
            "another vocabulary (see prepare --help) or choose another objective"
        )


def check_zero_state_rate(objective: Any) -> None:
    """Raise a ValueError unless `zero_state_rate` is a probability below 1."""
    rate = objective.zero_state_rate
    if not 0 <= rate < 1:
        raise ValueError(
            f"{objective.name}: zero_state_rate={rate}; the share of rows that begin with a state "
            "of zeros is at least 0 and below 1"
        )
