"""Checks of denoising: the whole text as the target, and masks in the input instead of spans."""

import functools
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
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of denoising."""
    objective, vocabulary, tokens = stream.objective, stream.vocabulary, stream.split.tokens
    table: DocumentRows = stream.table
    other_text = foreign = wrong_rows = disorder = padding = 0
    hidden = masks = total = 0
    expected = variance = 0.0
    for inspected in batches:
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
            hidden, total = hidden + num_hidden, total + length
            masks += len(source) - 2 - len(visible)
            moments = compute_span_moments(num_hidden, objective.mean_span)
            expected, variance = expected + moments[0], variance + moments[1]
    spread = 4 * math.sqrt(variance) + 0.5
    return [
        Check(
            "share of tokens hidden",
            not wrong_rows,
            f"{hidden / max(total, 1):.4f} ({wrong_rows} rows off)",
            f"{objective.noise_density} of each row, rounded",
        ),
        Check(
            "masks for them",
            abs(masks - expected) <= spread,
            f"{masks:,}",
            f"{expected:,.0f} ± {spread:,.0f} (mean span {objective.mean_span:g})",
        ),
        check_absence("rows whose target is not the store's text", other_text),
        check_absence("inputs with words that are not the text's", foreign),
        *([] if objective.shuffled else [check_absence("inputs out of order", disorder)]),
        check_absence("tokens in padding, padding between tokens", padding),
        check_special_ids(vocabulary, token_id, "bos", "eos", "pad", "mask"),
    ]


@functools.cache
def compute_span_moments(num_hidden: int, mean_span: float) -> tuple[float, float]:
    """Return the mean and the variance of the number of spans that hide `num_hidden` tokens.

    Spans are drawn until their lengths sum to that number, and at most that many count. The sum of
    k lengths has a Poisson distribution of the mean k * mean_span; more than k spans are drawn
    where it is below `num_hidden`.
    """
    sums_N = np.arange(num_hidden)
    log_factorials_N = np.cumsum(np.log(np.maximum(sums_N, 1)))
    mean = square = 0.0
    for k in range(num_hidden):
        average = max(k * mean_span, 1e-30)
        log_pmf_N = sums_N * math.log(average) - average - log_factorials_N
        tail = float(np.exp(log_pmf_N).sum())
        mean, square = mean + tail, square + (2 * k + 1) * tail
        if tail < 1e-15:  # of the following k it is still less
            break
    return mean, max(square - mean * mean, 0.0)
