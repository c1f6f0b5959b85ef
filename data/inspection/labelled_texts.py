"""Checks of rows of labelled examples: their texts, cut at their ends, and their labels."""

from collections.abc import Callable, Sequence
from typing import Any

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.inspection.rendering import decode_spaced_token
from data.rows.frames import unframe_batch


def check_labels(
    stream: RowStream, seen: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of classification and regression."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    assert split.labels is not None
    edges, count = split.sentence_starts, len(split.labels)
    num_texts = (len(edges) - 1) // count
    unbounded = other_text = other_label = padding = segments = shorter = 0
    for inspected in seen:
        batch = unframe_batch(objective, inspected.batch)
        other_label += (batch["labels"] != split.labels[inspected.row_B]).sum()
        padding += (batch["token_ids"][~batch["attention_mask"]] != vocabulary.pad).sum()
        for row, number in enumerate(inspected.row_B.tolist()):
            ids = batch["token_ids"][row, batch["attention_mask"][row]].tolist()
            first = num_texts * number
            whole = [
                split.tokens[edges[first + i] : edges[first + i + 1]].tolist()
                for i in range(num_texts)
            ]
            end = ids.index(vocabulary.sep)
            second = end + objective.separators if num_texts == 2 else len(ids)
            parts = [ids[1:end], ids[second:-1]][:num_texts]
            unbounded += ids[0] != vocabulary.cls or ids[-1] != vocabulary.sep
            other_text += any(part != text[: len(part)] for part, text in zip(parts, whole))
            segments += batch["token_type_ids"][row].tolist() != [
                int(second <= i < len(ids)) for i in range(objective.length)
            ]
            shorter += (
                list(map(len, parts)) != list(map(len, whole)) and len(ids) < objective.length
            )
    return [
        check_special_ids(vocabulary, token_id, "pad", "cls", "sep"),
        check_absence("labels that are not the example's", other_label),
        check_absence("rows that do not begin and end with special tokens", unbounded),
        check_absence("rows with other text than the example's", other_text),
        check_absence("texts that are cut though the row has room", shorter),
        check_absence("rows whose segments are not their texts", segments),
        check_absence("tokens in padding", padding),
    ]


def render_labelled_row(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i in readable form."""
    batch, length = seen.batch, int(seen.batch["attention_mask"][i].sum())
    label = batch["labels"][i]
    described = f"class {label}" if batch["labels"].dtype.kind == "i" else f"score {label:g}"
    return {
        "row": int(seen.row_B[i]),
        "tokens": [
            decode_spaced_token(stream.vocabulary, token)
            for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "segments": batch["token_type_ids"][i, :length].tolist(),
        "label": described,
    }
