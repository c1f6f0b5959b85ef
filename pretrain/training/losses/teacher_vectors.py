"""Distillation of vectors: the squared error of a text's vector and its teacher's.

B texts   K = 1   D = W width
"""

import jax
import jax.numpy as jnp

from data.objectives.teacher_vectors import TeacherVectors
from models.heads.embedder import normalize_vectors
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, stack_predictions


def compute_cosines(states: tuple[jax.Array, jax.Array], batch: Batch) -> jax.Array:
    """Return the cosine of each text's vector and its teacher's, float32 [B]."""
    own_BD, teacher_BD = map(normalize_vectors, (states[0][:, 0], batch["teacher_vectors"]))
    return (own_BD * teacher_BD).sum(axis=-1)


def make_teacher_vectors(objective: TeacherVectors) -> Loss:
    """Return the loss of an objective's target."""

    def compute_sums(
        states: tuple[jax.Array, jax.Array], score_tokens: ScoreTokens, batch: Batch
    ) -> dict[str, jax.Array]:
        score_tokens.refuse_smoothing("a vector has no classes")
        vectors_BD, teacher_BD = states[0][:, 0], batch["teacher_vectors"]
        if vectors_BD.shape != teacher_BD.shape:
            raise ValueError(
                f"the model's vectors have {vectors_BD.shape[1]} components and the teacher's "
                f"{teacher_BD.shape[1]}: write the teacher's with `embed --width`, or take an "
                "encoder of its width"
            )
        cosines_B = compute_cosines(states, batch)
        if objective.target == "direction":
            vectors_BD, teacher_BD = normalize_vectors(vectors_BD), normalize_vectors(teacher_BD)
        errors_B = jnp.square(vectors_BD - teacher_BD).mean(axis=1)
        weights_B = batch["label_weights"]
        return {
            "squared_error": (errors_B * weights_B).sum(),
            "teacher_cosine": (cosines_B * weights_B).sum(),
        }

    # A loss with predictions of rows has no perplexity, which is of tokens.
    def predict_rows(states: tuple[jax.Array, jax.Array], batch: Batch) -> jax.Array:
        cosines_B = compute_cosines(states, batch)
        return stack_predictions(cosines_B, jnp.ones_like(cosines_B), batch["label_weights"])

    return Loss(
        input_keys=("token_ids", "attention_mask", "token_type_ids"),
        compute_sums=compute_sums,
        weight_keys=dict.fromkeys(("squared_error", "teacher_cosine"), "label_weights"),
        loss_terms=("squared_error",),
        token_keys=("attention_mask",),
        row_predictions=predict_rows,
        configure=make_teacher_vectors,
    )


LOSS = make_teacher_vectors(TeacherVectors())
