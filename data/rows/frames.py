"""The special tokens around texts: `[CLS] A [SEP] B [SEP]`, and two other frames.

The [CLS] is the last token, `A [SEP] B [SEP] [CLS]`, in XLNet (Yang et al. 2019). A causal decoder
has the end of text between two texts and no other special token, `A <eos> B`, as the classifiers of
Hugging Face transformers.

B rows   L row length
"""

from typing import Any

import numpy as np

from data.rows.tables import Batch
from data.vocabulary.base import Vocabulary

CLS_TYPE = 2  # token type of the [CLS], which belongs to no text
# Keys whose values move with their tokens, and keys of positions, which follow their tokens.
WEIGHTS = ("label_weights", "word_weights")
BY_TOKEN = ("token_ids", "token_type_ids", "labels", "text_tokens", *WEIGHTS)
POSITIONS = ("start_positions", "end_positions", "context_starts", "masked_positions")


def count_around(objective: Any) -> int:
    """Return the number of special tokens before and after the texts of a row."""
    return 0 if objective.cls_position == "none" else 2


def find_separator(objective: Any, vocabulary: Vocabulary) -> int | None:
    """Return the id of the token between two texts; None if the vocabulary has none."""
    return vocabulary.eos if objective.cls_position == "none" else vocabulary.sep


def find_padding(vocabulary: Vocabulary) -> int:
    """Return the id on padding, which no model reads.

    It is the padding token, or the end-of-text token in a vocabulary without padding, or 0.
    """
    ids = vocabulary.pad, vocabulary.eos, 0
    return next(token_id for token_id in ids if token_id is not None)


def move_cls_last(rows: Batch) -> Batch:
    """Return rows of `[CLS] A [SEP] ...` with the [CLS] after the other tokens.

    rows: has "attention_mask" [..., L], padded on the right, and keys of `BY_TOKEN` and
      `POSITIONS`.
    """
    last = rows["attention_mask"].sum(axis=-1, keepdims=True) - 1
    column_L = np.arange(rows["attention_mask"].shape[-1])
    origin = np.where(column_L < last, column_L + 1, np.where(column_L == last, 0, column_L))
    moved = move_tokens(rows, origin)
    for key in rows.keys() & {*POSITIONS}:
        position = rows[key]
        end = last.reshape(-1, *[1] * (position.ndim - 1))
        moved[key] = np.where(position == 0, end, position - 1).astype(position.dtype)
    if "token_type_ids" in rows:
        moved["token_type_ids"] = np.where(column_L == last, CLS_TYPE, moved["token_type_ids"])
    return moved


def move_cls_first(batch: Batch) -> Batch:
    """Return the batch as it was before `move_cls_last`."""
    last = batch["attention_mask"].sum(axis=-1, keepdims=True) - 1
    column_L = np.arange(batch["attention_mask"].shape[-1])
    origin = np.where(column_L > last, column_L, np.where(column_L == 0, last, column_L - 1))
    moved = move_tokens(batch, origin)
    for key in batch.keys() & {*POSITIONS}:
        position = batch[key]
        end = last.reshape(-1, *[1] * (position.ndim - 1))
        moved[key] = np.where(position == end, 0, position + 1).astype(position.dtype)
    if "token_type_ids" in batch:
        moved["token_type_ids"][..., 0] -= CLS_TYPE
    return moved


def move_tokens(batch: Batch, origin: np.ndarray) -> Batch:
    """Return a batch in which each position [..., L] has what belongs to the token at `origin`."""
    return {
        key: np.take_along_axis(array, origin, axis=-1)
        if key in BY_TOKEN and array.shape == origin.shape
        else array
        for key, array in batch.items()
    }


def frame_rows(objective: Any, rows: Batch) -> Batch:
    """Return rows of `[CLS] A [SEP] ...` with the [CLS] where the objective has it."""
    return move_cls_last(rows) if objective.cls_position == "last" else rows
