"""Checks of permutation language modelling: the predicted tokens, the orders and the rows' text."""

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
from data.inspection.rows import check_sentence_pairs, check_texts
from data.rows.frames import move_cls_first


def check_permutations(
    stream: RowStream, batches: Sequence[InspectedBatch], token_id: Callable[[str], int | None]
) -> list[Check]:
    """Return the checks of batches of permutation_lm.

    token_id: piece -> its id in the tokenizer.
    """
    objective, vocabulary = stream.objective, stream.vocabulary
    predicted = tokens = wrong_rows = special = padding = disorder = labels = ranks = 0
    for inspected in batches:
        batch = inspected.batch
        ids_BL, mask_BL = batch["token_ids"], batch["attention_mask"]
        used_BP, positions_BP = batch["label_weights"] > 0, batch["masked_positions"]
        text_B = (mask_BL & ~vocabulary.special[ids_BL]).sum(axis=1)
        wanted_B = np.clip(text_B // objective.partial, 1, np.maximum(text_B - 1, 0))
        number_B = used_BP.sum(axis=1)
        predicted, tokens = predicted + number_B.sum(), tokens + text_B.sum()
        wrong_rows += (number_B != wanted_B).sum()
        special += vocabulary.special[batch["labels"][used_BP]].sum()
        padding += (ids_BL[~mask_BL] != vocabulary.pad).sum()
        padding += (used_BP & ~np.take_along_axis(mask_BL, positions_BP, axis=1)).sum()
        disorder += (used_BP[:, 1:] & (np.diff(positions_BP, axis=1) <= 0)).sum()
        labels += (
            used_BP & (np.take_along_axis(ids_BL, positions_BP, axis=1) != batch["labels"])
        ).sum()
        ranks += count_wrong_ranks(batch, vocabulary.special)
    return [
        Check(
            "share of tokens predicted",
            bool(wrong_rows == 0),
            f"{predicted / max(tokens, 1):.4f} ({predicted:,} of {tokens:,}; {wrong_rows} rows "
            "off)",
            f"one in {objective.partial} of each row",
        ),
        check_special_ids(vocabulary, token_id, "pad", "cls", "sep"),
        check_absence("labels that are not the row's tokens", labels),
        check_absence("special tokens predicted", special),
        check_absence("losses on padding, tokens in it", padding),
        check_absence("positions out of order", disorder),
        check_absence("rows whose ranks are not an order of predicted and special tokens", ranks),
        *check_rows(stream, batches),
    ]


def count_wrong_ranks(batch: dict[str, np.ndarray], is_special: np.ndarray) -> int:
    """Return the number of rows whose ranks are not 1, 2, ... on predicted and special tokens."""
    wrong = 0
    for i, (ids_L, mask_L, ranks_L) in enumerate(
        zip(batch["token_ids"], batch["attention_mask"], batch["permutation_ranks"])
    ):
        ordered_L = mask_L & is_special[ids_L]
        ordered_L[batch["masked_positions"][i, batch["label_weights"][i] > 0]] = True
        expected = np.arange(1, ordered_L.sum() + 1)
        wrong += (
            not np.array_equal(np.sort(ranks_L[ordered_L]), expected) or ranks_L[~ordered_L].any()
        )
    return wrong


def check_rows(stream: RowStream, batches: Sequence[InspectedBatch]) -> list[Check]:
    """Return the checks of the rows' text, and of pairs.

    An evaluation gives predicted tokens that other rows have, too, no weight; these are restored
    from the row itself.
    """
    framed = [inspected._replace(batch=move_cls_first(inspected.batch)) for inspected in batches]
    if stream.objective.rows != "pairs":
        return check_texts(stream, framed)
    for inspected in framed:
        *_, other_B = stream.table.draw_pairs(
            inspected.row_B,
            inspected.key_B,
            stream.objective.short_seq_prob,
            stream.objective.random_next,
        )
        inspected.batch["next_sentence_labels"] = other_B.astype(np.int32)
    return check_sentence_pairs(stream, framed)


def render_permuted_row(stream: RowStream, inspected: InspectedBatch, i: int) -> dict[str, Any]:
    """Return row i: its tokens, and its predicted tokens in the order of their factorization."""
    batch, vocabulary = inspected.batch, stream.vocabulary
    length = int(batch["attention_mask"][i].sum())
    ranks_L, used_P = batch["permutation_ranks"][i], batch["label_weights"][i] > 0
    positions = sorted(batch["masked_positions"][i, used_P].tolist(), key=lambda p: ranks_L[p])
    row: dict[str, Any] = {
        "row": int(inspected.row_B[i]),
        "tokens": [
            decode_spaced_token(vocabulary, token)
            for token in batch["token_ids"][i, :length].tolist()
        ],
        "padding": int(batch["attention_mask"].shape[1] - length),
        "masked": [
            {
                "position": position,
                "rank": int(ranks_L[position]),
                "target": vocabulary.format_token(int(batch["token_ids"][i, position])),
                "how": "in order",
            }
            for position in positions
        ],
    }
    if "token_type_ids" in batch:
        row["segments"] = batch["token_type_ids"][i, :length].tolist()
    return row
