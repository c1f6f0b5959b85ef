"""The batch spec: keys, types and shapes of an objective's batches, which data and training agree on. Its `spec()` gives them.

B rows of the batch   L row length   P masked positions of a row   T target length   C choices of a question

`token_ids`, `encoder_token_ids`  ids, padded on the right
`attention_mask`    True where there is a token; of an encoder-decoder `encoder_attention_mask`
`masked_positions`  indices into the row, ascending
`labels`            what is to be predicted: ids of tokens, the number of a class, or a score
`label_weights`     1.0 where a label counts, 0.0 on padding; a row that only fills up a batch has weights of 0
`segment_ids`       which of its row's texts a token belongs to, from 1; 0 on padding
`is_continued`      False where a row does not go on from the row before it on its lane: a state begins from zero
`token_type_ids`    which of the two texts of a row a token belongs to, 0 or 1
"""

from typing import NamedTuple

import numpy as np


class Field(NamedTuple):
    """One key of a batch. dims: a letter a dimension, such as "BL"; role: what its numbers are, such as TOKEN_ID, or ""."""

    dtype: str
    dims: str
    role: str = ""


TOKEN_ID = "token id"  # each of which the vocabulary must have

# Keys that several objectives have.
TOKENS = {"token_ids": Field("int32", "BL", TOKEN_ID), "attention_mask": Field("bool", "BL")}
PAIR = TOKENS | {"token_type_ids": Field("int32", "BL")}  # 1 for the second text and its [SEP]
SEGMENTS = {"segment_ids": Field("int32", "BL")}  # of rows of several texts
CONTINUES = {"is_continued": Field("bool", "B")}  # of rows on lanes
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


def shapes(objective, batch_size):
    """{key: (dtype, shape)} of a batch of `batch_size` rows for an objective's configuration.

    An objective's configuration has a `name` and gives the sizes of its letters by `dims()`, e.g. {"L": 128, "P": 20}.
    """
    sizes = {"B": batch_size, **objective.dims()}
    return {
        key: (np.dtype(field.dtype), tuple(sizes[letter] for letter in field.dims))
        for key, field in objective.spec().items()
    }


def check(batch, objective, batch_size, vocabulary=None):
    """Raise a ValueError that names the key unless `batch` is what the spec says, and each id is one of a vocabulary, where it is given.

    A model gives NaN for an id that it does not have, on padding too: as weights of 0 do not undo it, it is refused here, on the host.
    """
    expected, fields = shapes(objective, batch_size), objective.spec()
    if batch.keys() != expected.keys():
        missing, extra = (
            sorted(expected.keys() - batch.keys()),
            sorted(batch.keys() - expected.keys()),
        )
        raise ValueError(
            f"{objective.name} batch: missing {missing}, not in its batch spec: {extra}"
        )
    for key, (dtype, shape) in expected.items():
        if batch[key].dtype != dtype or batch[key].shape != shape:
            seen = f"{batch[key].dtype}{list(batch[key].shape)}"
            raise ValueError(
                f"{objective.name} batch: {key} is {seen}, the batch spec says {dtype}{list(shape)}"
            )
        if (
            vocabulary is not None
            and fields[key].role == TOKEN_ID
            and not (0 <= batch[key].min() and batch[key].max() < vocabulary.size)
        ):
            bad = batch[key][(batch[key] < 0) | (batch[key] >= vocabulary.size)]
            raise ValueError(
                f"{objective.name} batch: {key} holds the id {bad[0]}, but the vocabulary has the ids 0 to {vocabulary.size - 1}"
            )
