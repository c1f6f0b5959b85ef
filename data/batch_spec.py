"""The batch spec: for each objective, its batch's keys, types and shapes, which data and training agree on.

B rows of the batch   L row length   P masked positions of a row   T target length   C choices of a question

`token_ids`, `encoder_token_ids`  ids, padded on the right
`attention_mask`    True where there is a token; of an encoder-decoder `encoder_attention_mask`
`masked_positions`  indices into the row, ascending
`labels`            what is to be predicted: ids of tokens, the number of a class, or a score
`label_weights`     1.0 where a label counts, 0.0 on padding; a row that only fills up a batch has weights of 0
`segment_ids`       which of its row's texts a token belongs to, from 1; 0 on padding
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

ROWS = {"token_ids": Field("int32", "BL", TOKEN_ID), "attention_mask": Field("bool", "BL")}
MASKED = {
    "masked_positions": Field("int32", "BP"),
    "labels": Field("int32", "BP", TOKEN_ID),
    "label_weights": Field("float32", "BP"),
}
BESIDES = {
    "packed": {"segment_ids": Field("int32", "BL")}
}  # what an objective's `rows` add to its batches

BATCHES = {
    "masked_lm": ROWS | MASKED,
    "distillation": ROWS | MASKED,
    "sentence_pair": ROWS
    | MASKED
    | {
        "token_type_ids": Field(
            "int32", "BL"
        ),  # 0 for [CLS] A [SEP] and for padding, 1 for B [SEP]
        "next_sentence_labels": Field(
            "int32", "B"
        ),  # 0: B follows A; 1: B comes from another document
        "next_sentence_weights": Field("float32", "B"),
    },
    "sentence_order": ROWS
    | MASKED
    | {
        "token_type_ids": Field(
            "int32", "BL"
        ),  # 0 for [CLS] A [SEP] and for padding, 1 for B [SEP]
        "sentence_order_labels": Field(
            "int32", "B"
        ),  # 0: A stands before B in the document; 1: behind it
        "sentence_order_weights": Field("float32", "B"),
    },
    "replaced_token": ROWS
    | MASKED
    | {
        "uniforms": Field(
            "float32", "BP"
        ),  # from 0 to below 1: each draws the word that the generator puts there
        "discriminator_weights": Field(
            "float32", "BL"
        ),  # 1.0 where there is a token, each of which is judged
    },
    "span_corruption": {
        "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
        "encoder_attention_mask": Field("bool", "BL"),
        "labels": Field("int32", "BT", TOKEN_ID),
        "label_weights": Field("float32", "BT"),
    },
    "denoising": {
        "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
        "encoder_attention_mask": Field("bool", "BL"),
        "labels": Field("int32", "BT", TOKEN_ID),
        "label_weights": Field("float32", "BT"),
    },
    "prefix_lm": {
        "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
        "encoder_attention_mask": Field("bool", "BL"),
        "labels": Field("int32", "BT", TOKEN_ID),
        "label_weights": Field("float32", "BT"),
    },
    "text2text": {
        "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
        "encoder_attention_mask": Field("bool", "BL"),
        "labels": Field("int32", "BT", TOKEN_ID),
        "label_weights": Field("float32", "BT"),
    },
    # Several pairs a row: segments count them from 1; 0 on padding.
    "seq2seq": {
        "encoder_token_ids": Field("int32", "BL", TOKEN_ID),
        "encoder_attention_mask": Field("bool", "BL"),
        "encoder_segment_ids": Field("int32", "BL"),
        "labels": Field("int32", "BT", TOKEN_ID),
        "decoder_segment_ids": Field("int32", "BT"),
        "label_weights": Field("float32", "BT"),
    },
    "classification": ROWS
    | {
        "token_type_ids": Field(
            "int32", "BL"
        ),  # 1 for the second text of a pair and the [SEP] behind it
        "labels": Field("int32", "B"),  # the number of a class
        "label_weights": Field("float32", "B"),  # of its class
        "row_weights": Field("float32", "B"),  # 1.0 for a row
    },
    "regression": ROWS
    | {
        "token_type_ids": Field("int32", "BL"),
        "labels": Field("float32", "B"),
        "label_weights": Field("float32", "B"),
    },
    "tagging": ROWS
    | {
        "labels": Field("int32", "BL"),  # the number of a word's tag, at its first piece
        "label_weights": Field("float32", "BL"),  # there, of its tag
        "word_weights": Field("float32", "BL"),  # 1.0 there
        "row_weights": Field("float32", "B"),  # 1.0 for a row
    },
    # A row for each choice of a question.
    "multiple_choice": {
        "token_ids": Field("int32", "BCL", TOKEN_ID),
        "attention_mask": Field("bool", "BCL"),
        "token_type_ids": Field("int32", "BCL"),  # 1 for the choice and the [SEP] behind it
        "labels": Field("int32", "B"),  # the number of the right choice
        "label_weights": Field("float32", "B"),
    },
    # A question and a part of its context; of both targets 0, which is [CLS], where the answer is not in this part.
    "answer_span": ROWS
    | {
        "token_type_ids": Field("int32", "BL"),  # 1 for the context and the [SEP] behind it
        "start_positions": Field("int32", "B"),  # the position of the answer's first token
        "end_positions": Field("int32", "B"),  # ... and of its last
        "question_ids": Field("int32", "B"),  # the number of the question in its part of the store
        "context_starts": Field("int32", "B"),  # the position that the context begins at
        "context_offsets": Field("int32", "B"),  # how many of its tokens stand before this part
        "label_weights": Field("float32", "B"),
    },
    # Rows without padding: `targets` are the tokens one place further on.
    "causal_lm": {
        "token_ids": Field("int32", "BL", TOKEN_ID),
        "labels": Field("int32", "BL", TOKEN_ID),
        "label_weights": Field("float32", "BL"),
    },
}


def fields_of(objective):
    """Return {key: Field} of an objective's batches, in their order."""
    return BATCHES[objective.name] | BESIDES.get(getattr(objective, "rows", ""), {})


def shapes(objective, batch_size):
    """{key: (dtype, shape)} of a batch of `batch_size` rows for an objective's configuration.

    An objective's configuration has a `name` and gives the sizes of its letters by `dims()`, e.g. {"L": 128, "P": 20}.
    """
    sizes = {"B": batch_size, **objective.dims()}
    return {
        key: (np.dtype(field.dtype), tuple(sizes[letter] for letter in field.dims))
        for key, field in fields_of(objective).items()
    }


def check(batch, objective, batch_size, vocabulary=None):
    """Raise a ValueError that names the key unless `batch` is what the spec says, and each id is one of a vocabulary, where it is given.

    A model gives NaN for an id that it does not have, on padding too: as weights of 0 do not undo it, it is refused here, on the host.
    """
    expected, fields = shapes(objective, batch_size), fields_of(objective)
    if batch.keys() != expected.keys():
        missing, extra = (
            sorted(expected.keys() - batch.keys()),
            sorted(batch.keys() - expected.keys()),
        )
        raise ValueError(
            f"{objective.name} batch: missing {missing}, not in data/batch_spec.py: {extra}"
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
