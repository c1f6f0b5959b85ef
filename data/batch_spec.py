"""The batch spec: keys, dtypes and shapes of the batches, on which data and training agree.

An objective's `describe_batch()` returns it.

B rows of the batch   L row length   P masked positions of a row   T target length
C choices of a question, or characters of a word

`token_ids`, `encoder_token_ids`  token ids, padded on the right
                    A character-based model has each word's characters here, see
                    data/vocabulary/spelling.py, and in `backward_ids`, which are read from
                    the end of a row
`attention_mask`    True at real tokens; `encoder_attention_mask` in encoder-decoder models
`masked_positions`  indices into the row, ascending
`permutation_ranks` place of each token in the factorization order, from 1; 0 for the context, which
                    all tokens see
`labels`            what the model predicts: token ids, the number of a class, or a score
`label_weights`     1.0 where a label counts, 0.0 on padding and in rows that only fill up a batch
`segment_ids`       the number of the packed text that a token belongs to, from 1; 0 on padding
`is_continued`      False where a row does not continue the previous row of its lane, so that the
                    recurrent state starts at zero
`token_type_ids`    the text of a pair that a token belongs to, 0 or 1; 2 for a [CLS] at the end
"""

from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from data.rows.tables import Batch
from data.vocabulary.base import SPELLED, Vocabulary


class Field(NamedTuple):
    """One key of a batch.

    dtype: name of the NumPy dtype.
    dims: one letter for each dimension, such as "BL".
    role: what the numbers stand for, such as TOKEN_ID, or "".
    """

    dtype: str
    dims: str
    role: str = ""


class SpecifiedObjective(Protocol):
    """The methods of `data.objectives.objective.Objective` that define its batches."""

    name: ClassVar[str]

    def axis_sizes(self) -> dict[str, int]: ...
    def describe_batch(self) -> dict[str, Field]: ...


TOKEN_ID = "token id"  # role of a field; the vocabulary must have all its numbers

CHARACTER = "character"  # role of a field: data/vocabulary/spelling.py

# Keys that several objectives have.
TOKENS = {"token_ids": Field("int32", "BL", TOKEN_ID), "attention_mask": Field("bool", "BL")}
PAIR = TOKENS | {"token_type_ids": Field("int32", "BL")}  # 1 for the second text and its [SEP]
SEGMENTS = {"segment_ids": Field("int32", "BL")}  # of rows of several texts
CONTINUED = {"is_continued": Field("bool", "B")}  # of rows on lanes
MASKED = {
    "masked_positions": Field("int32", "BP"),
    "labels": Field("int32", "BP", TOKEN_ID),
    "label_weights": Field("float32", "BP"),
}
SEQ2SEQ = {
    "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
    "encoder_attention_mask": Field("bool", "BL"),
    "labels": Field("int32", "BT", TOKEN_ID),
    "label_weights": Field("float32", "BT"),
}


def spell_fields(fields: dict[str, Field], characters: int) -> dict[str, Field]:
    """Return the fields of a batch in which words are read by so many characters; 0: by ids."""
    if not characters:
        return fields
    return {
        key: Field("uint16", f"{field.dims}C", CHARACTER) if key in SPELLED else field
        for key, field in fields.items()
    }


def add_characters(sizes: dict[str, int], characters: int) -> dict[str, int]:
    """Return the sizes of the axes, with the characters of a word if there are any."""
    return sizes | {"C": characters} if characters else sizes


def compute_shapes(
    objective: SpecifiedObjective, batch_size: int
) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Return {key: (dtype, shape)} of a batch of `batch_size` rows of an objective."""
    sizes = {"B": batch_size, **objective.axis_sizes()}
    return {
        key: (np.dtype(field.dtype), tuple(sizes[letter] for letter in field.dims))
        for key, field in objective.describe_batch().items()
    }


def check_batch(
    batch: Batch,
    objective: SpecifiedObjective,
    batch_size: int,
    vocabulary: Vocabulary | None = None,
) -> None:
    """Raise a ValueError that names the key unless `batch` matches the batch spec.

    With a vocabulary, also check that it has every token id. An id outside of it makes the model
    return NaN, even on padding, and a loss weight of 0 does not remove a NaN.
    """
    expected, fields = compute_shapes(objective, batch_size), objective.describe_batch()
    if batch.keys() != expected.keys():
        missing = sorted(expected.keys() - batch.keys())
        extra = sorted(batch.keys() - expected.keys())
        raise ValueError(
            f"{objective.name} batch: missing {missing}, not in its batch spec: {extra}"
        )
    for key, (dtype, shape) in expected.items():
        array = batch[key]
        if array.dtype != dtype or array.shape != shape:
            actual = f"{array.dtype}{list(array.shape)}"
            raise ValueError(
                f"{objective.name} batch: {key} is {actual}, "
                f"the batch spec says {dtype}{list(shape)}"
            )
        if (
            vocabulary is not None
            and fields[key].role == TOKEN_ID
            and not (0 <= array.min() and array.max() < vocabulary.size)
        ):
            bad = array[(array < 0) | (array >= vocabulary.size)]
            raise ValueError(
                f"{objective.name} batch: {key} holds the id {bad[0]}, "
                f"but the vocabulary has the ids 0 to {vocabulary.size - 1}"
            )
