"""Rows whose [CLS] is their last token, `A [SEP] B [SEP] [CLS]`, as in XLNet (Yang et al. 2019).

B rows   L row length
"""

from typing import Any

import numpy as np

from data.rows.tables import Batch

CLS_TYPE = 2  # token type of the [CLS]: that of no text
# What belongs to a token moves with it; a position becomes that to which its token has moved.
BY_TOKEN = ("token_ids", "token_type_ids", "labels", "label_weights", "word_weights")
POSITIONS = ("start_positions", "end_positions", "context_starts", "masked_positions")


def move_cls_last(rows: Batch) -> Batch:
    """Return rows of `[CLS] A [SEP] ...` with the [CLS] behind the other tokens.

    rows: has "attention_mask" [..., L], padded on the right, and keys of `BY_TOKEN` and
      `POSITIONS`.
    """
    last = rows["attention_mask"].sum(axis=-1, keepdims=True) - 1
    column_L = np.arange(rows["attention_mask"].shape[-1])
    source = np.where(column_L < last, column_L + 1, np.where(column_L == last, 0, column_L))
    moved = move_tokens(rows, source)
    for key in rows.keys() & {*POSITIONS}:
        position = rows[key]
        end = last.reshape(-1, *[1] * (position.ndim - 1))
        moved[key] = np.where(position == 0, end, position - 1).astype(position.dtype)
    if "token_type_ids" in rows:
        moved["token_type_ids"] = np.where(column_L == last, CLS_TYPE, moved["token_type_ids"])
    return moved


def move_cls_first(batch: Batch) -> Batch:
    """Return what `move_cls_last` has changed as it was."""
    last = batch["attention_mask"].sum(axis=-1, keepdims=True) - 1
    column_L = np.arange(batch["attention_mask"].shape[-1])
    source = np.where(column_L > last, column_L, np.where(column_L == 0, last, column_L - 1))
    moved = move_tokens(batch, source)
    for key in batch.keys() & {*POSITIONS}:
        position = batch[key]
        end = last.reshape(-1, *[1] * (position.ndim - 1))
        moved[key] = np.where(position == end, 0, position + 1).astype(position.dtype)
    if "token_type_ids" in batch:
        moved["token_type_ids"][..., 0] -= CLS_TYPE
    return moved


def move_tokens(batch: Batch, source: np.ndarray) -> Batch:
    """Return a batch in which each position [..., L] has what belongs to the token at `source`."""
    return {
        key: np.take_along_axis(array, source, axis=-1)
        if key in BY_TOKEN and array.shape == source.shape
        else array
        for key, array in batch.items()
    }


def frame_rows(objective: Any, rows: Batch) -> Batch:
    """Return rows of `[CLS] A [SEP] ...` with the [CLS] where the objective has it."""
    return move_cls_last(rows) if objective.cls_position == "last" else rows


def unframe_batch(objective: Any, batch: Batch) -> Batch:
    """Return a batch as it is before `frame_rows`."""
    return move_cls_first(batch) if objective.cls_position == "last" else batch
