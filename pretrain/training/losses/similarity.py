"""Similarity: the cosine of two texts' vectors is compared with their score.

B pairs   K = 2 texts   D width
"""

import jax
import jax.numpy as jnp

from data.objectives.similarity import Similarity
from models.heads.embedder import normalize_vectors
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, stack_predictions

EXCLUDED = -1e30  # the difference of a pair that does not count


def compute_cosines(vectors_BKD: jax.Array) -> jax.Array:
    """Return the cosine of the two vectors of each pair, float32 [B]."""
    first_BD, second_BD = normalize_vectors(vectors_BKD).swapaxes(0, 1)
    return (first_BD * second_BD).sum(axis=-1)


def compare_order(scaled_B: jax.Array, label_B: jax.Array, weight_B: jax.Array) -> jax.Array:
    """Return log(1 + sum of exp(a - b) over all pairs of examples with score a < score b).

    Su (2022), CoSENT.

    Args:
      scaled_B: the cosines over the temperature.
      label_B: the scores.
      weight_B: 0 for rows that do not count.
    """
    counts_BB = (label_B[:, None] < label_B) & (weight_B[:, None] > 0) & (weight_B > 0)
    difference_BB = jnp.where(counts_BB, scaled_B[:, None] - scaled_B, EXCLUDED)
    return jax.nn.logsumexp(jnp.append(difference_BB.reshape(-1), 0.0))


def make_similarity(objective: Similarity) -> Loss:
    """Return the loss of an objective's target."""

    def compute_sums(
        states: tuple[jax.Array, jax.Array], score_tokens: ScoreTokens, batch: Batch
    ) -> dict[str, jax.Array]:
        score_tokens.refuse_smoothing("the score of a pair has no classes")
        vectors_BKD, scale = states
        cosine_B, labels_B = compute_cosines(vectors_BKD), batch["labels"]
        weights_B = batch["label_weights"]
        if objective.target == "order":
            # One number for the batch, which its weights divide again.
            loss = compare_order(scale * cosine_B, labels_B, weights_B)
            return {"similarity": loss * weights_B.sum()}
        errors_B = jnp.square(cosine_B - labels_B / objective.highest)
        return {"similarity": (errors_B * weights_B).sum()}

    def predict_rows(states: tuple[jax.Array, jax.Array], batch: Batch) -> jax.Array:
        cosine_B = compute_cosines(states[0])
        return stack_predictions(cosine_B, batch["labels"], batch["label_weights"])

    return Loss(
        input_keys=("token_ids", "attention_mask", "token_type_ids"),
        compute_sums=compute_sums,
        weight_keys={"similarity": "label_weights"},
        loss_terms=("similarity",),
        token_keys=("attention_mask",),
        row_predictions=predict_rows,
        configure=make_similarity,
    )


LOSS = make_similarity(Similarity())
