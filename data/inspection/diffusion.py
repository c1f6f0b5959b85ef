"""Checks of masked diffusion: the rates of a batch, the masks that they draw, and their weights."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.inspection.checks import (
    MAX_SIGMAS,
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.inspection.rows import check_texts, restore_tokens


def check_diffused_texts(
    stream: RowStream,
    batches: Sequence[InspectedBatch],
    token_id: Callable[[str], int | None],
) -> list[Check]:
    """Check the masks, their weights and the text of rows of masked_diffusion."""
    objective, vocabulary = stream.objective, stream.vocabulary
    masked = wrong_rates = unmasked = special = padding = disorder = unweighed = 0
    expected = variance = 0.0
    for inspected in batches:
        batch, text_BL = inspected.batch, restore_tokens(inspected.batch)
        used_BP, mask_BL = batch["label_weights"] > 0, batch["attention_mask"]
        ordinary_BL = mask_BL & ~vocabulary.special[text_BL]
        rate_B = find_rates(objective, batch["label_weights"])
        seen_B = used_BP.any(axis=1)
        weight_B = batch["label_weights"].max(axis=1)
        wrong_rates += (np.abs(weight_B * rate_B - 1)[seen_B] > 1e-3).sum()
        wrong_rates += (used_BP & (batch["label_weights"] != weight_B[:, None])).any(axis=1).sum()
        masked += used_BP.sum()
        number_B = ordinary_BL.sum(axis=1)
        expected += (number_B * rate_B).sum()
        variance += (number_B * rate_B * (1 - rate_B)).sum()
        shown_BP = np.take_along_axis(batch["token_ids"], batch["masked_positions"], axis=1)
        unmasked += (used_BP & (shown_BP != vocabulary.mask)).sum()
        special += vocabulary.special[batch["labels"][used_BP]].sum()
        padding += (used_BP & ~np.take_along_axis(mask_BL, batch["masked_positions"], axis=1)).sum()
        padding += (batch["token_ids"][~mask_BL] != vocabulary.pad).sum()
        disorder += (used_BP[:, 1:] & (np.diff(batch["masked_positions"], axis=1) <= 0)).sum()
        unweighed += (batch["text_weights"] != ordinary_BL).sum()
    spread = MAX_SIGMAS * math.sqrt(variance) + 1
    return [
        check_absence("rows whose weight is not 1 / rate, rates not evenly spaced", wrong_rates),
        Check(
            "tokens masked",
            bool(abs(masked - expected) <= spread),
            f"{masked:,}",
            f"{expected:,.0f} ± {spread:,.0f}",
        ),
        check_absence("masked by another token than [MASK]", unmasked),
        check_special_ids(vocabulary, token_id, "pad", "cls", "sep", "mask"),
        check_absence("special tokens masked", special),
        check_absence("losses on padding, tokens in it", padding),
        check_absence("positions out of order", disorder),
        check_absence("tokens that the loss is not divided by, others that it is", unweighed),
        *check_texts(stream, batches),
    ]


def find_rates(objective: Any, weights_BP: np.ndarray) -> np.ndarray:
    """Return the rate of each row of a batch, by the weights of its first row with a mask: [B].

    The others follow at equal distances, with the least after the largest.
    """
    least, width, B = (
        objective.least_rate,
        objective.most_rate - objective.least_rate,
        len(weights_BP),
    )
    weight_B = weights_BP.max(axis=1)
    first = int(np.argmax(weight_B > 0))
    if not weight_B[first] or not width:
        return np.full(B, least)
    place = (1 / weight_B[first] - least) / width
    return least + width * ((place + (np.arange(B) - first) / B) % 1)
