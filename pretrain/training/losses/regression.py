"""Regression: squared error of a row's score.

B batch   C one score
"""

import jax
import jax.numpy as jnp

from pretrain.training.losses.base import Batch, Loss, ScoreTokens
from pretrain.training.losses.terms import predicted_and_label


def score(scores_BC: jax.Array, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the sum of the squared errors."""
    squared_error_B = jnp.square(scores_BC[:, 0] - batch["labels"])
    return {"regression": (squared_error_B * batch["label_weights"]).sum()}


def predict_rows(scores_BC: jax.Array, batch: Batch) -> jax.Array:
    """Return the score of each row, as `Loss.row_predictions` describes."""
    return predicted_and_label(scores_BC[:, 0], batch["labels"], batch["label_weights"])


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "token_type_ids"),
    score=score,
    weights={"regression": "label_weights"},
    loss_terms=("regression",),
    tokens=("attention_mask",),
    row_predictions=predict_rows,
)
