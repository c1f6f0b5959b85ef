"""Distillation of image classifiers (Touvron et al. 2021, section 4).

    hard:  1/2 CE(class head, y) + 1/2 CE(distillation head, the teacher's class)     (equation 3)
    soft:  (1 - l) CE(class head, y) + l T^2 KL(teacher / T || distillation head / T) (equation 2)

The first term is as in `image_classification`, with its mixtures and smoothing of labels. What
the teacher predicts for a mixture is taken as it is.

B batch   K classes
"""

from functools import partial
from typing import Any

import jax

from data.objectives.image_distillation import ImageDistillation
from models.layers.heads import compute_divergence
from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses import image_classification
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens


def compute_sums(
    logits: Any, score_tokens: ScoreTokens, batch: Batch, *, objective: ImageDistillation
) -> dict[str, jax.Array]:
    """Return the losses of labels and teacher, and how many images student and teacher get right.

    logits: as in `models.deit_student.StudentLogits`.
    """
    labels_B, weights_B = batch["labels"], batch["row_weights"]
    sums = image_classification.compute_sums(logits.by_class, score_tokens, batch)
    if objective.targets == "hard":
        classes_B = logits.by_teacher.argmax(axis=-1)
        distance, _ = cross_entropy(logits.by_distillation, classes_B, weights_B)
    else:
        divergence_B = compute_divergence(
            logits.by_distillation, logits.by_teacher, objective.temperature
        )
        distance = (divergence_B * weights_B).sum()
    return sums | {
        "image_classification_accuracy": cross_entropy(logits.prediction, labels_B, weights_B)[1],
        "distillation": distance,
        "teacher_accuracy": cross_entropy(logits.by_teacher, labels_B, weights_B)[1],
    }


def predict_rows(logits: Any, batch: Batch) -> jax.Array:
    """Return the predicted and the right class of each row."""
    return image_classification.predict_rows(logits.prediction, batch)


def configure(objective: ImageDistillation) -> Loss:
    """Return the loss of an objective's settings."""
    share = objective.distillation_weight
    return Loss(
        input_keys=("pixels",),
        compute_sums=partial(compute_sums, objective=objective),
        weight_keys=dict.fromkeys(
            (
                *("image_classification", "image_classification_accuracy"),
                *("distillation", "teacher_accuracy"),
            ),
            "row_weights",
        ),
        loss_terms=("image_classification", "distillation"),
        token_keys=("row_weights",),
        loss_weights={"image_classification": 1 - share, "distillation": share},
        row_predictions=predict_rows,
        configure=configure,
    )


LOSS = configure(ImageDistillation())
