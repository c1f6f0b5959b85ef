"""The loss of the score of a row: the square of what it is missed by.

B batch   C one score
"""

import jax.numpy as jnp

from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import predicted_and_label


def score(scores_BC, score_tokens, batch):
    """Return the sum of the squared errors."""
    squares_B = jnp.square(scores_BC[:, 0] - batch["labels"])
    return {"regression": (squares_B * batch["label_weights"]).sum()}


def predict_rows(scores_BC, batch):
    """Return the score of each row, as `Loss.row_predictions` says."""
    return predicted_and_label(scores_BC[:, 0], batch["labels"], batch["label_weights"])


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids"),
    score=score,
    weights={"regression": "label_weights"},
    loss_terms=("regression",),
    tokens=("attention_mask",),
    row_predictions=predict_rows,
)
