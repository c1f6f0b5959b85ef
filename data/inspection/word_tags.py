"""Checks of rows of tagged sentences: their words, and a tag at the first token of each word."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.inspection.rendering import decode_spaced_token
from data.rows.frames import unframe_batch


def check_tags(
    stream: RowStream, seen: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of tagging."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    assert split.tags is not None
    edges = split.document_starts
    tag_of = dict(zip(split.sentence_starts[:-1].tolist(), split.tags.astype(int).tolist()))
    unbounded = other_text = other_tags = padding = shorter = 0
    for inspected in seen:
        batch = unframe_batch(objective, inspected.batch)
        padding += (batch["token_ids"][~batch["attention_mask"]] != vocabulary.pad).sum()
        for row, number in enumerate(inspected.row_B.tolist()):
            ids = batch["token_ids"][row, batch["attention_mask"][row]].tolist()
            start = int(edges[number])
            whole = split.tokens[start : edges[number + 1]].tolist()
            unbounded += ids[0] != vocabulary.cls or ids[-1] != vocabulary.sep
            other_text += ids[1:-1] != whole[: len(ids) - 2]
            shorter += len(ids) - 2 < len(whole) and len(ids) < objective.length
            expected = {
                1 + i: tag
                for i in range(len(ids) - 2)
                if (tag := tag_of.get(start + i)) is not None
            }
            positions = np.flatnonzero(batch["label_weights"][row]).tolist()
            labels = batch["labels"][row][positions].tolist()
            other_tags += dict(zip(positions, labels)) != expected
    return [
        check_special_ids(vocabulary, token_id, "pad", "cls", "sep"),
        check_absence(
            "rows whose tags do not match their words, at their first pieces", other_tags
        ),
        check_absence("rows that do not begin and end with special tokens", unbounded),
        check_absence("rows with other text than the sentence's", other_text),
        check_absence("sentences that are cut though the row has room", shorter),
        check_absence("tokens in padding", padding),
    ]


def render_tagged_row(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i in readable form."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    positions = np.flatnonzero(batch["label_weights"][i])
    labels = batch["labels"][i][positions]
    return {
        "row": int(seen.row_B[i]),
        "tokens": [
            decode_spaced_token(stream.vocabulary, token)
            for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "label": " ".join(
            f"{position}:{tag}" for position, tag in zip(positions.tolist(), labels.tolist())
        ),
    }
