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
from data.rows.frames import count_around, find_padding, find_separator, unframe_batch
from data.rows.tables import require_id
from data.vocabulary.base import Vocabulary


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
        padding += (batch["token_ids"][~batch["attention_mask"]] != find_padding(vocabulary)).sum()
        for row, number in enumerate(inspected.row_B.tolist()):
            ids = batch["token_ids"][row, batch["attention_mask"][row]].tolist()
            first = num_texts * number
            whole = [
                split.tokens[edges[first + i] : edges[first + i + 1]].tolist()
                for i in range(num_texts)
            ]
            parts, second, is_bounded = split_row(objective, vocabulary, ids, num_texts)
            unbounded += not is_bounded
            other_text += any(part != text[: len(part)] for part, text in zip(parts, whole))
            segments += batch["token_type_ids"][row].tolist() != [
                int(second <= i < len(ids)) for i in range(objective.length)
            ]
            shorter += (
                list(map(len, parts)) != list(map(len, whole)) and len(ids) < objective.length
            )
    return [
        check_special_ids(vocabulary, token_id, *list_roles(objective, vocabulary)),
        check_absence("labels that are not the example's", other_label),
        check_absence("rows that do not begin and end with special tokens", unbounded),
        check_absence("rows with other text than the example's", other_text),
        check_absence("texts that are cut though the row has room", shorter),
        check_absence("rows whose segments are not their texts", segments),
        check_absence("tokens in padding", padding),
    ]


def split_row(
    objective: Any, vocabulary: Vocabulary, ids: list[int], num_texts: int
) -> tuple[list[list[int]], int, bool]:
    """Return the parts of a row.

    Args:
      objective: the objective of the row.
      vocabulary: the vocabulary.
      ids: the row without padding, with the [CLS] first.
      num_texts: number of texts of a row.

    Returns:
      The texts, where the second one begins, and whether the special tokens around them are there.
    """
    separator, is_framed = find_separator(objective, vocabulary), count_around(objective) > 0
    first, stop = (1, len(ids) - 1) if is_framed else (0, len(ids))
    end = ids.index(require_id(separator)) if num_texts == 2 else stop
    second = end + objective.separators if num_texts == 2 else len(ids)
    is_bounded = not is_framed or (ids[0] == vocabulary.cls and ids[-1] == separator)
    return [ids[first:end], ids[second:stop]][:num_texts], second, is_bounded


def list_roles(objective: Any, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the special tokens that a row of texts has."""
    if count_around(objective):
        return "pad", "cls", "sep"
    return () if vocabulary.eos is None else ("eos",)


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
