"""The treaty between the data side and the training side: for each objective, its batch's keys, types and shapes.

B rows of the batch   L row length   P masked positions of a row   T target length   C choices of a question

`tokens`, `inputs`  ids, padded on the right           `valid`, `inputs_valid`  True where there is a token
`positions`         indices into the row, ascending    `targets`  the ids to predict
`weights`           1.0 where a target counts, 0.0 on padding; a row that only fills up a batch has weights of 0
`pieces`            which of its row's texts a token belongs to, from 1; 0 on padding
"""

import numpy as np

ROWS = {"tokens": ("int32", "BL"), "valid": ("bool", "BL")}
IDS = ("tokens", "inputs", "targets")  # keys of ids, each of which the vocabulary must have
MASKED = {"positions": ("int32", "BP"), "targets": ("int32", "BP"), "weights": ("float32", "BP")}
BESIDES = {"packed": {"pieces": ("int32", "BL")}}  # what an objective's `rows` add to its batches

BATCHES = {
    "masked_lm": ROWS | MASKED,
    "distillation": ROWS | MASKED,
    "sentence_pair": ROWS
    | MASKED
    | {
        "segments": ("int32", "BL"),  # 0 for [CLS] A [SEP] and for padding, 1 for B [SEP]
        "next_sentence": ("int32", "B"),  # 0: B follows A; 1: B comes from another document
        "next_weights": ("float32", "B"),
    },
    "sentence_order": ROWS
    | MASKED
    | {
        "segments": ("int32", "BL"),  # 0 for [CLS] A [SEP] and for padding, 1 for B [SEP]
        "order": ("int32", "B"),  # 0: A stands before B in the document; 1: behind it
        "order_weights": ("float32", "B"),
    },
    "replaced_token": ROWS
    | MASKED
    | {
        "chances": (
            "float32",
            "BP",
        ),  # from 0 to below 1: each draws the word that the generator puts there
        "token_weights": ("float32", "BL"),  # 1.0 where there is a token, each of which is judged
    },
    "span_corruption": {
        "inputs": ("int32", "BL"),
        "inputs_valid": ("bool", "BL"),
        "targets": ("int32", "BT"),
        "weights": ("float32", "BT"),
    },
    "denoising": {
        "inputs": ("int32", "BL"),
        "inputs_valid": ("bool", "BL"),
        "targets": ("int32", "BT"),
        "weights": ("float32", "BT"),
    },
    "prefix_lm": {
        "inputs": ("int32", "BL"),
        "inputs_valid": ("bool", "BL"),
        "targets": ("int32", "BT"),
        "weights": ("float32", "BT"),
    },
    "text2text": {
        "inputs": ("int32", "BL"),
        "inputs_valid": ("bool", "BL"),
        "targets": ("int32", "BT"),
        "weights": ("float32", "BT"),
    },
    # Several pairs a row: segments count them from 1; 0 on padding.
    "seq2seq": {
        "inputs": ("int32", "BL"),
        "inputs_valid": ("bool", "BL"),
        "inputs_segments": ("int32", "BL"),
        "targets": ("int32", "BT"),
        "targets_segments": ("int32", "BT"),
        "weights": ("float32", "BT"),
    },
    "classification": ROWS
    | {
        "segments": ("int32", "BL"),  # 1 for the second text of a pair and the [SEP] behind it
        "labels": ("int32", "B"),  # the number of a class
        "weights": ("float32", "B"),  # of its class
        "row_weights": ("float32", "B"),  # 1.0 for a row
    },
    "regression": ROWS
    | {"segments": ("int32", "BL"), "scores": ("float32", "B"), "weights": ("float32", "B")},
    "tagging": ROWS
    | {
        "labels": ("int32", "BL"),  # the number of a word's tag, at its first piece
        "weights": ("float32", "BL"),  # there, of its tag
        "word_weights": ("float32", "BL"),  # 1.0 there
        "row_weights": ("float32", "B"),  # 1.0 for a row
    },
    # A row for each choice of a question.
    "multiple_choice": {
        "tokens": ("int32", "BCL"),
        "valid": ("bool", "BCL"),
        "segments": ("int32", "BCL"),  # 1 for the choice and the [SEP] behind it
        "labels": ("int32", "B"),  # the number of the right choice
        "weights": ("float32", "B"),
    },
    # A question and a part of its context; of both targets 0, which is [CLS], where the answer is not in this part.
    "answer_span": ROWS
    | {
        "segments": ("int32", "BL"),  # 1 for the context and the [SEP] behind it
        "starts": ("int32", "B"),  # the position of the answer's first token
        "ends": ("int32", "B"),  # ... and of its last
        "questions": ("int32", "B"),  # the number of the question in its part of the store
        "contexts": ("int32", "B"),  # the position that the context begins at
        "skipped": ("int32", "B"),  # how many of its tokens stand before this part
        "weights": ("float32", "B"),
    },
    # Rows without padding: `targets` are the tokens one place further on.
    "causal_lm": {
        "tokens": ("int32", "BL"),
        "targets": ("int32", "BL"),
        "weights": ("float32", "BL"),
    },
}


def shapes(objective, batch_size):
    """{key: (dtype, shape)} of a batch of `batch_size` rows for an objective's configuration.

    An objective's configuration has a `name` and gives the sizes of its letters by `dims()`, e.g. {"L": 128, "P": 20}.
    """
    sizes = {"B": batch_size, **objective.dims()}
    treaty = BATCHES[objective.name] | BESIDES.get(getattr(objective, "rows", ""), {})
    return {
        key: (np.dtype(dtype), tuple(sizes[letter] for letter in dims))
        for key, (dtype, dims) in treaty.items()
    }


def check(batch, objective, batch_size, vocabulary=None):
    """Raise a ValueError that names the key unless `batch` is what the treaty says, and each id is one of a vocabulary, where it is given.

    A model gives NaN for an id that it does not have, on padding too: as weights of 0 do not undo it, it is refused here, on the host.
    """
    expected = shapes(objective, batch_size)
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
                f"{objective.name} batch: {key} is {seen}, the treaty says {dtype}{list(shape)}"
            )
        if (
            vocabulary is not None
            and key in IDS
            and not (0 <= batch[key].min() and batch[key].max() < vocabulary.size)
        ):
            bad = batch[key][(batch[key] < 0) | (batch[key] >= vocabulary.size)]
            raise ValueError(
                f"{objective.name} batch: {key} holds the id {bad[0]}, but the vocabulary has the ids 0 to {vocabulary.size - 1}"
            )
