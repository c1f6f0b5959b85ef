"""Checks of span corruption: the number of removed tokens, the sentinels, and the rebuilt text."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
    format_ends,
)
from data.rows.tables import WindowRows
from data.vocabulary.base import Vocabulary


def check_spans(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of span_corruption."""
    objective, vocabulary = stream.objective, stream.vocabulary
    table: WindowRows = stream.table
    tokenizer = [token_id(f"<extra_id_{i}>") for i in range(objective.num_spans)]
    from_end = [vocabulary.size - 1 - i for i in range(objective.num_spans)]
    foreign = gaps = loss = other_text = removed = num_rows = 0
    batches, unmarked = strip_mode_tokens(objective, vocabulary, batches)
    for inspected in batches:
        batch = inspected.batch
        inputs_BL, labels_BT = batch["encoder_token_ids"], batch["labels"]
        start_B = table.locate_starts(inspected.row_B)
        for inputs, targets, start in zip(inputs_BL, labels_BT, start_B.tolist()):
            foreign += inputs[np.isin(inputs, vocabulary.sentinels)].tolist() != tokenizer
            raw, num_removed = rebuild_text(
                inputs.tolist(), targets.tolist(), set(vocabulary.sentinels)
            )
            other_text += raw != stream.split.tokens[start : start + objective.raw_length].tolist()
            removed, num_rows = removed + num_removed, num_rows + 1
        gaps += (~batch["encoder_attention_mask"]).sum() + (inputs_BL == vocabulary.pad).sum()
        gaps += (inputs_BL[:, -1] != vocabulary.eos).sum()
        gaps += (labels_BT[:, -1] != vocabulary.eos).sum()
        loss += ((batch["label_weights"] > 0) & (labels_BT == vocabulary.pad)).sum()
        loss += (batch["label_weights"] == 0).sum()
    raw_length, num_spans = objective.raw_length, objective.num_spans
    mean, share = removed / (num_rows * num_spans), removed / (num_rows * raw_length)
    return [
        Check(
            "share of tokens removed",
            abs(share - objective.noise_density) <= 0.5001 / raw_length
            or objective.num_noise_tokens in (1, raw_length - 1),
            f"{share:.4f}",
            f"{objective.noise_density} of {raw_length}, rounded",
        ),
        Check(
            "mean span",
            abs(removed / num_rows / objective.mean_span - num_spans) <= 0.5001 or num_spans == 1,
            f"{mean:.3f} ({num_spans} spans a row)",
            f"{objective.mean_span}, so that spans are whole",
        ),
        Check(
            "sentinels are the tokenizer's <extra_id_0> ...",
            not foreign and None not in tokenizer,
            f"{foreign} rows differ",
            f"{format_ends(tokenizer)} in every row",
        ),
        Check(
            "sentinels count down from the vocabulary's end",
            tokenizer == from_end,
            format_ends(tokenizer),
            format_ends(from_end),
        ),
        check_special_ids(vocabulary, token_id, "eos"),
        check_absence("gaps in rows (padding, no </s>)", gaps),
        check_absence("losses on padding, tokens without loss", loss),
        check_absence("rows that do not rebuild the store's text", other_text),
        *unmarked,
    ]


def strip_mode_tokens(
    objective: Any, vocabulary: Vocabulary, batches: Sequence[InspectedBatch]
) -> tuple[Sequence[InspectedBatch], list[Check]]:
    """Return the batches without the mode token of each row, and a check of these tokens."""
    if not objective.mode:
        return batches, []
    mode, wrong, stripped = objective.find_mode_id(vocabulary), 0, []
    for inspected in batches:
        inputs_BL = inspected.batch["encoder_token_ids"]
        wrong += (inputs_BL[:, 0] != mode).sum()
        mask_BL = inspected.batch["encoder_attention_mask"]
        rest = {"encoder_token_ids": inputs_BL[:, 1:], "encoder_attention_mask": mask_BL[:, 1:]}
        stripped.append(inspected._replace(batch=inspected.batch | rest))
    return stripped, [check_absence(f"rows that do not begin with {objective.mode}", wrong)]


def rebuild_text(
    inputs: Sequence[int], targets: Sequence[int], sentinels: set[int]
) -> tuple[list[int], int]:
    """Return the raw ids and the number that were removed.

    Each sentinel of the inputs is replaced by the ids after it in the targets.
    """
    spans: dict[int, list[int]] = {}
    current: list[int] = []
    for token in targets[:-1]:
        if token in sentinels:
            current = spans.setdefault(token, [])
        else:
            current.append(token)
    raw = []
    for token in inputs[:-1]:
        raw += spans.get(token, []) if token in sentinels else [token]
    return raw, sum(map(len, spans.values()))
