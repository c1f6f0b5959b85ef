"""Checks of denoising: the whole text as the target, and masks in the input in place of spans."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.rows.tables import DocumentRows


def check_denoising(
    stream: RowStream, seen: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of denoising."""
    objective, vocabulary, tokens = stream.objective, stream.vocabulary, stream.split.tokens
    table: DocumentRows = stream.table
    other_text = foreign = wrong_rows = disorder = padding = 0
    hidden = masks = spans = rows = total = 0
    for inspected in seen:
        batch, (start_B, length_B) = inspected.batch, table.locate_spans(inspected.row_B)
        sides = (
            (batch["encoder_token_ids"], batch["encoder_attention_mask"]),
            (batch["labels"], batch["label_weights"] > 0),
        )
        for ids_BN, used_BN in sides:
            padding += (ids_BN[~used_BN] != vocabulary.pad).sum() + (
                np.diff(used_BN.astype(int), axis=1) > 0
            ).sum()
        inputs, targets = ([ids[used].tolist() for ids, used in zip(*side)] for side in sides)
        for source, target, start, length in zip(
            inputs, targets, start_B.tolist(), length_B.tolist()
        ):
            text = tokens[start : start + length].tolist()
            framed = [source[0], source[-1]] == [vocabulary.bos, vocabulary.eos]
            other_text += target != [vocabulary.bos, *text, vocabulary.eos] or not framed
            visible = [token for token in source[1:-1] if token != vocabulary.mask]
            num_hidden = length - len(visible)
            wrong_rows += num_hidden != round(objective.noise_density * length)
            foreign += bool(Counter(visible) - Counter(text))
            rest = iter(text)
            disorder += not all(token in rest for token in visible)
            hidden, total, rows = hidden + num_hidden, total + length, rows + 1
            masks += len(source) - 2 - len(visible)
            # The average number of spans that are drawn until they hide so many tokens.
            spans += num_hidden / objective.mean_span + 0.5 if num_hidden else 0
    # Lengths vary by the root of their mean; rows that hide few tokens deviate from the average by
    # up to a quarter of a span.
    spread = 4 * math.sqrt(hidden) / objective.mean_span + 0.25 * rows
    return [
        Check(
            "share of tokens hidden",
            not wrong_rows,
            f"{hidden / max(total, 1):.4f} ({wrong_rows} rows off)",
            f"{objective.noise_density} of each row, rounded",
        ),
        Check(
            "masks for them",
            abs(masks - spans) <= spread,
            f"{masks:,}",
            f"{spans:,.0f} ± {spread:,.0f} (mean span {objective.mean_span:g})",
        ),
        check_absence("rows whose target is not the store's text", other_text),
        check_absence("inputs with words that are not the text's", foreign),
        *([] if objective.shuffled else [check_absence("inputs out of order", disorder)]),
        check_absence("tokens in padding, padding between tokens", padding),
        check_special_ids(vocabulary, token_id, "bos", "eos", "pad", "mask"),
    ]
