"""Rows whose [CLS] is their last token, `A [SEP] B [SEP] [CLS]`, as in XLNet (Yang et al. 2019).

B rows   L row length
"""

import numpy as np

from data.rows.tables import Batch

CLS_TYPE = 2  # token type of the [CLS]: that of no text


def move_cls_last(rows: Batch) -> Batch:
    """Return rows of `[CLS] A [SEP] ...` with the [CLS] behind the other tokens.

    rows: has "token_ids" and "attention_mask" [B, L], padded on the right, and perhaps
      "token_type_ids".
    """
    last_B = rows["attention_mask"].sum(axis=1) - 1
    row_B = np.arange(len(last_B))
    moved = dict(rows)
    for key in rows.keys() & {"token_ids", "token_type_ids"}:
        ids_BL = rows[key]
        moved[key] = np.concatenate([ids_BL[:, 1:], ids_BL[:, -1:]], axis=1)
        moved[key][row_B, last_B] = ids_BL[:, 0] if key == "token_ids" else CLS_TYPE
    return moved


def move_cls_first(batch: Batch) -> Batch:
    """Return what `move_cls_last` has changed as it was, and the masked positions with it."""
    last_B = batch["attention_mask"].sum(axis=1) - 1
    row_B = np.arange(len(last_B))
    moved = dict(batch)
    for key in batch.keys() & {"token_ids", "token_type_ids"}:
        ids_BL = batch[key]
        moved[key] = np.concatenate([ids_BL[:, :1], ids_BL[:, :-1]], axis=1)
        moved[key][:, 0] = ids_BL[row_B, last_B] if key == "token_ids" else 0
        # Behind a text that is not full there is padding again.
        full_B = last_B + 1 == ids_BL.shape[1]
        after_B = np.minimum(last_B + 1, ids_BL.shape[1] - 1)
        moved[key][row_B, after_B] = np.where(
            full_B, moved[key][row_B, after_B], ids_BL[row_B, after_B]
        )
    if "masked_positions" in batch:
        moved["masked_positions"] = batch["masked_positions"] + 1
    return moved
