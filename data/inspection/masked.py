"""What masks promise: how many there are, what stands in their places, and that no other token is predicted."""

import numpy as np

from data.inspection.checks import Check, none, specials, within
from data.inspection.rows import originals


def masks(stream, seen, token_id, shares=(0.8, 0.1), roles=("pad", "cls", "sep", "mask")):
    """Measure the masks of a row of masked words.

    shares: of the masked words, those that become [MASK], and another word. roles: of the special tokens that rows are built with.
    """
    objective, vocabulary = stream.objective, stream.vocabulary
    masked = tokens = wanted = wrong_rows = special = padding = disorder = torn = 0
    actions = np.zeros(3, np.int64)  # [MASK], another id, the same id
    for each in seen:
        batch, text_BL = each.batch, originals(each.batch)
        used_BP, valid_BL = batch["label_weights"] > 0, batch["attention_mask"]
        ordinary_B = (valid_BL & ~vocabulary.special[text_BL]).sum(axis=1)
        wanted_B = [
            min(objective.max_predictions, max(1, round(objective.mask_rate * n)), n)
            for n in ordinary_B.tolist()
        ]
        number_B = used_BP.sum(axis=1)
        masked, tokens, wanted = (
            masked + number_B.sum(),
            tokens + ordinary_B.sum(),
            wanted + sum(wanted_B),
        )
        wrong_rows += (
            (number_B > wanted_B).sum() if objective.whole_words else (number_B != wanted_B).sum()
        )
        special += vocabulary.special[batch["labels"][used_BP]].sum()
        padding += (
            used_BP & ~np.take_along_axis(valid_BL, batch["masked_positions"], axis=1)
        ).sum()
        padding += (batch["token_ids"][~valid_BL] != vocabulary.pad).sum()
        disorder += (used_BP[:, 1:] & (np.diff(batch["masked_positions"], axis=1) <= 0)).sum()
        shown = np.take_along_axis(batch["token_ids"], batch["masked_positions"], axis=1)[used_BP]
        same = shown == batch["labels"][used_BP]
        actions += (
            (shown == vocabulary.mask).sum(),
            ((shown != vocabulary.mask) & ~same).sum(),
            same.sum(),
        )
        torn += torn_words(batch, text_BL, vocabulary) if objective.whole_words else 0
    share = masked / max(tokens, 1)
    rate_holds = wrong_rows == 0 and (not objective.whole_words or masked >= 0.8 * wanted)
    as_mask, as_other = shares
    chance = as_other / (~vocabulary.special).sum()  # a random id is the true one
    bound = "at most " if objective.whole_words else ""
    return [
        Check(
            "share of tokens masked",
            bool(rate_holds),
            f"{share:.4f} ({masked:,} of {tokens:,}; {wrong_rows} rows off)",
            f"{bound}{objective.mask_rate} of each row, rounded",
        ),
        within("masked as [MASK]", actions[0], masked, as_mask),
        within("masked by another word", actions[1], masked, as_other - chance),
        within("masked as itself", actions[2], masked, 1 - as_mask - as_other + chance),
        specials(vocabulary, token_id, *roles),
        none("special tokens masked", special),
        none("losses on padding, tokens in it", padding),
        none("positions out of order", disorder),
        *([none("words masked in part", torn)] if objective.whole_words else []),
    ]


def replacements(seen):
    """Measure what draws other words in the places of masks, and whether every token is judged."""
    chances = np.concatenate([each.batch["uniforms"].ravel() for each in seen])
    unjudged = sum(
        (each.batch["discriminator_weights"] != each.batch["attention_mask"]).sum() for each in seen
    )
    return [
        none("chances below 0, or of 1 and more", ((chances < 0) | (chances >= 1)).sum()),
        *(
            within(f"chances below {at}", (chances < at).sum(), chances.size, at)
            for at in (0.1, 0.5, 0.9)
        ),
        none("tokens not judged, padding judged", unjudged),
    ]


def torn_words(batch, text_BL, vocabulary):
    """Words of which some pieces are masked and others not."""
    torn = 0
    for text, valid, positions, weights in zip(
        text_BL.tolist(), batch["attention_mask"], batch["masked_positions"], batch["label_weights"]
    ):
        masked, words = set(positions[weights > 0].tolist()), []
        for i in range(int(valid.sum())):
            breaks = vocabulary.special[text[i]] and text[i] != vocabulary.unk
            if breaks or vocabulary.starts_word[text[i]] or not words:
                words.append([])
            words[-1].append(i)
            if breaks:
                words.append([])
        torn += sum(0 < len(masked.intersection(word)) < len(word) for word in words)
    return torn
