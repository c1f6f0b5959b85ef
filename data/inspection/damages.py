"""What rows of damaged texts promise: the text whole as the target, and of the input so many tokens hidden behind so many masks."""

import math
from collections import Counter

import numpy as np

from data.inspection.checks import Check, none, specials


def damages(stream, seen, token_id):
    """denoising."""
    objective, vocabulary, tokens = stream.objective, stream.vocabulary, stream.split.tokens
    other_text = foreign = wrong_rows = disorder = padding = hidden = masks = spans = rows = (
        kinds
    ) = 0
    for each in seen:
        batch, spans_of = each.batch, stream.table.spans(each.row_B)
        parts = (
            (batch["encoder_token_ids"], batch["encoder_attention_mask"]),
            (batch["labels"], batch["label_weights"] > 0),
        )
        for ids_BN, used_BN in parts:
            padding += (ids_BN[~used_BN] != vocabulary.pad).sum() + (
                np.diff(used_BN.astype(int), axis=1) > 0
            ).sum()
        inputs, targets = ([ids[used].tolist() for ids, used in zip(*part)] for part in parts)
        for read, written, start, length in zip(
            inputs, targets, *(values.tolist() for values in spans_of)
        ):
            text = tokens[start : start + length].tolist()
            other_text += written != [vocabulary.bos, *text, vocabulary.eos] or (
                read[0],
                read[-1],
            ) != (vocabulary.bos, vocabulary.eos)
            kept = [token for token in read[1:-1] if token != vocabulary.mask]
            gone, number = length - len(kept), round(objective.noise_density * length)
            wrong_rows += gone != number
            foreign += bool(Counter(kept) - Counter(text))
            rest = iter(text)
            disorder += not all(token in rest for token in kept)
            hidden, masks, rows = hidden + gone, masks + len(read) - 2 - len(kept), rows + 1
            kinds += length
            spans += (
                gone / objective.mean_span + 0.5 if gone else 0
            )  # what is drawn until they hide so many, on average
    # Lengths vary by the root of their mean; rows that hide few tokens stray from the average by up to a quarter of a span.
    spread = 4 * math.sqrt(hidden) / objective.mean_span + 0.25 * rows
    return [
        Check(
            "share of tokens hidden",
            not wrong_rows,
            f"{hidden / max(kinds, 1):.4f} ({wrong_rows} rows off)",
            f"{objective.noise_density} of each row, rounded",
        ),
        Check(
            "masks for them",
            abs(masks - spans) <= spread,
            f"{masks:,}",
            f"{spans:,.0f} ± {spread:,.0f} (mean span {objective.mean_span:g})",
        ),
        none("rows whose target is not the store's text", other_text),
        none("inputs with words that are not the text's", foreign),
        *([] if objective.shuffled else [none("inputs out of order", disorder)]),
        none("tokens in padding, padding between tokens", padding),
        specials(vocabulary, token_id, "bos", "eos", "pad", "mask"),
    ]
