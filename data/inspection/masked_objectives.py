"""Checks and rows in readable form of the objectives that mask tokens, one pair each.

Each is named by its objective, in `checks` and `rendering`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from data.inspection.causal import compare_to_store
from data.inspection.checks import Check, InspectedBatch, RowStream, check_absence
from data.inspection.masked import check_masks, check_replacements
from data.inspection.rendering import render_masked_row
from data.inspection.rows import check_sentence_order, check_sentence_pairs, check_texts
from data.rows.tables import Batch, WindowRows, require_id

TokenId = Callable[[str], int | None]
# What 0 and 1 mean, by the key of a batch.
PAIRS = ("B follows A", "B comes from another document")
ORDERS = ("A is before B in the document", "A is after B in the document")
PICTURES = ("the picture of the caption", "the picture of another caption")


def check_masked_texts(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check the masks and the text of rows of masked_lm."""
    shares = stream.objective.shares
    return [*check_masks(stream, batches, token_id, shares), *check_texts(stream, batches)]


def check_masked_pairs(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check the masks, the text and the pairs of rows of sentence_pair."""
    return [*check_masks(stream, batches, token_id), *check_sentence_pairs(stream, batches)]


def check_masked_order(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check the masks, the text and the order of rows of sentence_order."""
    return [*check_masks(stream, batches, token_id), *check_sentence_order(stream, batches)]


def check_replaced_texts(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check the masks, the text and the uniform numbers of rows of replaced_token."""
    return [
        *check_masks(stream, batches, token_id, shares=(1.0, 0.0)),
        *check_texts(stream, batches),
        *check_replacements(batches),
    ]


def check_shifted_masks(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: TokenId
) -> list[Check]:
    """Check the masks and the text of rows of masked_next_token."""
    table: WindowRows = stream.table
    eos = require_id(stream.vocabulary.eos)
    restored = [
        inspected._replace(batch=restore_positions(inspected.batch)) for inspected in batches
    ]
    other_text = misplaced = 0
    for inspected in restored:
        _, first_B = table.find_separators(table.locate_starts(inspected.row_B))
        batch = inspected.batch
        for b, first in enumerate(first_B.tolist()):
            row, used = batch["token_ids"][b].copy(), batch["label_weights"][b] > 0
            row[batch["masked_positions"][b, used]] = batch["labels"][b, used]
            text_holds, separators_hold = compare_to_store(
                row[1:], first, stream.split.tokens, stream.split.document_starts, eos
            )
            other_text += row[0] != eos or not text_holds
            misplaced += not separators_hold
    return [
        *check_masks(stream, restored, token_id, roles=("eos", "mask")),
        check_absence("rows whose text is not the store's", other_text),
        check_absence("rows with documents not separated", misplaced),
    ]


def restore_positions(batch: Batch) -> Batch:
    """Return the batch with the positions of the masked tokens, not the ones before them."""
    used_BP = batch["label_weights"] > 0
    return batch | {"masked_positions": batch["masked_positions"] + used_BP}


def render_shifted_masks(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of masked_next_token: its tokens and its labels."""
    return render_masked_row(
        stream, inspected._replace(batch=restore_positions(inspected.batch)), i
    )


def render_masked_pair(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of sentence_pair: its tokens, its labels and the pair's label."""
    return render_masked_row(
        stream, inspected, i, PAIRS[inspected.batch["next_sentence_labels"][i]]
    )


def render_masked_order(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of sentence_order: its tokens, its labels and the order."""
    return render_masked_row(
        stream, inspected, i, ORDERS[inspected.batch["sentence_order_labels"][i]]
    )


def render_masked_picture(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i of words_and_pictures: its tokens, its labels and whose picture it has."""
    return render_masked_row(
        stream, inspected, i, PICTURES[inspected.batch["next_sentence_labels"][i]]
    )
