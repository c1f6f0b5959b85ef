"""Checks of rows of questions: each choice after the same text, and the number of the right one."""

from collections.abc import Callable, Sequence
from typing import Any

from data.inspection.checks import (
    Check,
    InspectedBatch,
    RowStream,
    check_absence,
    check_special_ids,
)
from data.inspection.labelled_texts import list_roles, render_labelled_row, split_row
from data.rows.frames import find_padding, unframe_batch


def check_choices(
    stream: RowStream, seen: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Check batches of multiple_choice."""
    objective, vocabulary, split = stream.objective, stream.vocabulary, stream.split
    assert split.labels is not None
    edges, num_choices = split.sentence_starts, objective.choices
    unbounded = other_text = other_label = padding = segments = shorter = 0
    for inspected in seen:
        batch = unframe_batch(objective, inspected.batch)
        other_label += (batch["labels"] != split.labels[inspected.row_B]).sum()
        padding += (batch["token_ids"][~batch["attention_mask"]] != find_padding(vocabulary)).sum()
        for row, question in enumerate(inspected.row_B.tolist()):
            first = question * (num_choices + 1)
            texts = [
                split.tokens[edges[first + i] : edges[first + i + 1]].tolist()
                for i in range(num_choices + 1)
            ]
            for choice in range(num_choices):
                ids = batch["token_ids"][row, choice, batch["attention_mask"][row, choice]].tolist()
                (a, b), second, is_bounded = split_row(objective, vocabulary, ids, 2)
                unbounded += not is_bounded
                other_text += a != texts[0][: len(a)] or b != texts[choice + 1][: len(b)]
                shorter += (
                    len(a) + len(b) < len(texts[0]) + len(texts[choice + 1])
                    and len(ids) < objective.length
                )
                segments += batch["token_type_ids"][row, choice].tolist() != [
                    int(second <= i < len(ids)) for i in range(objective.length)
                ]
    return [
        check_special_ids(vocabulary, token_id, *list_roles(objective, vocabulary)),
        check_absence("labels that are not the question's", other_label),
        check_absence("rows that do not begin and end with special tokens", unbounded),
        check_absence("rows with other text than the question's and the choice's", other_text),
        check_absence("texts that are cut though the row has room", shorter),
        check_absence("rows whose segments are not their texts", segments),
        check_absence("tokens in padding", padding),
    ]


def render_question(stream: RowStream, seen: InspectedBatch, i: int) -> dict[str, Any]:
    """Return question i in readable form: the row of its right choice."""
    right = int(seen.batch["labels"][i])
    batch = {
        key: array[:, right] if array.ndim == 3 else array for key, array in seen.batch.items()
    }
    return render_labelled_row(stream, seen._replace(batch=batch), i) | {
        "label": f"choice {right}, as shown"
    }
