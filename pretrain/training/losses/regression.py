"""Regression: squared error of a row's score.

B batch   C one score
"""

import jax
import jax.numpy as jnp

from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, stack_predictions


def compute_sums(
    scores_BC: jax.Array, score_tokens: ScoreTokens, batch: Batch
) -> dict[str, jax.Array]:
    """Return the sum of the squared errors."""
    score_tokens.refuse_smoothing("the squared error of a score has no labels to smooth")
    squared_error_B = jnp.square(scores_BC[:, 0] - batch["labels"])
    return {"regression": (squared_error_B * batch["label_weights"]).sum()}


def predict_rows(scores_BC: jax.Array, batch: Batch) -> jax.Array:
    """Return the score of each row, as `Loss.row_predictions` describes."""
    return stack_predictions(scores_BC[:, 0], batch["labels"], batch["label_weights"])


LOSS = Loss(
    input_keys=("token_ids", "attention_mask", "token_type_ids"),
    compute_sums=compute_sums,
    weight_keys={"regression": "label_weights"},
    loss_terms=("regression",),
    token_keys=("attention_mask",),
    row_predictions=predict_rows,
)
