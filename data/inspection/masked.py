"""Checks of masked tokens: their number, what replaces them, and that no others are predicted."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_share,
    check_special_ids,
)
from data.inspection.rows import restore_tokens
from data.rows.tables import Batch
from data.rows.word_finder import WordFinder


def list_rates(objective: Any) -> list[float]:
    """Return the mask rate, or the two between which a ramp moves it, ascending."""
    ramp = objective.mask_ramp
    if ramp is None or ramp.is_constant:
        return [objective.mask_rate]
    return sorted([objective.mask_rate, ramp.start])


def check_masks(
    stream: RowStream,
    batches: Sequence[InspectedBatch],
    token_id: Callable[[str], int | None],
    shares: tuple[float, float] = (0.8, 0.1),
    roles: tuple[str, ...] = ("pad", "cls", "sep", "mask"),
) -> list[Check]:
    """Check the masks of batches.

    Args:
      token_id: piece -> its id in the tokenizer.
      shares: shares of the masked tokens that become [MASK], and another token.
    """
    objective, vocabulary, words = stream.objective, stream.vocabulary, find_words(stream)
    rates = list_rates(objective)
    masked = tokens = wanted = wrong_rows = special = padding = disorder = torn = 0
    actions = np.zeros(3, np.int64)
    for inspected in batches:
        batch, text_BL = inspected.batch, restore_tokens(inspected.batch)
        used_BP, mask_BL = batch["label_weights"] > 0, batch["attention_mask"]
        ordinary_B = (mask_BL & ~vocabulary.special[text_BL]).sum(axis=1)
        least_B, wanted_B = (
            [min(objective.max_predictions, max(1, round(rate * n)), n) for n in ordinary_B]
            for rate in (rates[0], rates[-1])
        )
        number_B = used_BP.sum(axis=1)
        masked += number_B.sum()
        tokens += ordinary_B.sum()
        wanted += sum(least_B)
        wrong_rows += (number_B > wanted_B).sum()
        wrong_rows += 0 if objective.whole_words else (number_B < least_B).sum()
        special += vocabulary.special[batch["labels"][used_BP]].sum()
        padding += (used_BP & ~np.take_along_axis(mask_BL, batch["masked_positions"], axis=1)).sum()
        padding += (batch["token_ids"][~mask_BL] != vocabulary.pad).sum()
        disorder += (used_BP[:, 1:] & (np.diff(batch["masked_positions"], axis=1) <= 0)).sum()
        actions += count_actions(batch, vocabulary.mask)
        torn += count_torn_words(batch, text_BL, words) if words else 0
    rate_holds = wrong_rows == 0 and (not objective.whole_words or masked >= 0.8 * wanted)
    as_mask, as_other = shares
    chance = as_other / (~vocabulary.special).sum()  # that a random id is the true one
    bound = "at most " if objective.whole_words else ""
    return [
        Check(
            "share of tokens masked",
            bool(rate_holds),
            f"{masked / max(tokens, 1):.4f} ({masked:,} of {tokens:,}; {wrong_rows} rows off)",
            f"{bound}{' to '.join(map(str, rates))} of each row, rounded",
        ),
        check_share("masked as [MASK]", actions[0], masked, as_mask),
        check_share("masked by another word", actions[1], masked, as_other - chance),
        check_share("masked as itself", actions[2], masked, 1 - as_mask - as_other + chance),
        check_special_ids(vocabulary, token_id, *roles),
        check_absence("special tokens masked", special),
        check_absence("losses on padding, tokens in it", padding),
        check_absence("positions out of order", disorder),
        *([] if words is None else [check_absence("words masked in part", torn)]),
    ]


def find_words(stream: RowStream) -> WordFinder | None:
    """Return what finds the words of rows that are masked by whole words, else None.

    Runs of tokens that overlap begin where a row's key draws, which a batch does not show.
    """
    objective, vocabulary = stream.objective, stream.vocabulary
    has_words = objective.whole_words and not vocabulary.overlap
    return objective.find_words(vocabulary) if has_words else None


def count_actions(batch: Batch, mask_id: int | None) -> np.ndarray:
    """Return how many masked tokens became [MASK], another id, and the same id: [3]."""
    used_BP = batch["label_weights"] > 0
    shown = np.take_along_axis(batch["token_ids"], batch["masked_positions"], axis=1)[used_BP]
    same = shown == batch["labels"][used_BP]
    as_mask = shown == mask_id
    return np.array([as_mask.sum(), (~as_mask & ~same).sum(), same.sum()])


def check_replacements(batches: Sequence[InspectedBatch]) -> list[Check]:
    """Check the uniform numbers of replaced_token, and that every token is classified."""
    uniforms = np.concatenate([inspected.batch["uniforms"].ravel() for inspected in batches])
    unweighed = sum(
        (inspected.batch["discriminator_weights"] != inspected.batch["attention_mask"]).sum()
        for inspected in batches
    )
    return [
        check_absence(
            "chances below 0, or of 1 and more", ((uniforms < 0) | (uniforms >= 1)).sum()
        ),
        *(
            check_share(f"chances below {limit}", (uniforms < limit).sum(), uniforms.size, limit)
            for limit in (0.1, 0.5, 0.9)
        ),
        check_absence("tokens not judged, padding judged", unweighed),
    ]


def count_torn_words(batch: Batch, text_BL: np.ndarray, words: WordFinder) -> int:
    """Return the number of words that are masked in part.

    text_BL: ids of the batch before they were masked.
    """
    starts_BL = words.mark_starts(words.starts_N[text_BL], words.ends_N[text_BL], np.zeros(0))
    word_BL = np.cumsum(starts_BL.reshape(-1)).reshape(starts_BL.shape)  # its number in the batch
    used_BP = batch["label_weights"] > 0
    masked_M = np.take_along_axis(word_BL, batch["masked_positions"], axis=1)[used_BP]
    length_W = np.bincount(word_BL.reshape(-1))
    masked_W = np.bincount(masked_M, minlength=len(length_W))
    return int(((masked_W > 0) & (masked_W < length_W)).sum())
