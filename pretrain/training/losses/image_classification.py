"""Image classification: cross entropy of an image's class, or of the classes of a mixture.

    loss = l CE(y_a) + (1 - l) CE(y_b)        (Zhang et al. 2018; Yun et al. 2019)

B batch   C classes
"""

import jax

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, stack_predictions


def compute_sums(
    scores_BC: jax.Array, score_tokens: ScoreTokens, batch: Batch
) -> dict[str, jax.Array]:
    """Return the loss, and the number of images whose highest score is their class's.

    Of a mixture it is the class of the first image.
    """
    weights_B, labels_B = batch["row_weights"], batch["labels"]
    smoothing = score_tokens.label_smoothing
    loss_sum, num_correct = cross_entropy(scores_BC, labels_B, weights_B)
    if smoothing or "label_shares" in batch:
        shares_B = batch.get("label_shares", weights_B)
        loss_sum, _ = cross_entropy(scores_BC, labels_B, weights_B * shares_B, smoothing)
    if "label_shares" in batch:
        other_B, other_weights_B = batch["mixed_labels"], weights_B * (1 - shares_B)
        loss_sum += cross_entropy(scores_BC, other_B, other_weights_B, smoothing)[0]
    return {"image_classification": loss_sum, "image_classification_accuracy": num_correct}


def predict_rows(scores_BC: jax.Array, batch: Batch) -> jax.Array:
    """Return the predicted and the right class of each row."""
    return stack_predictions(scores_BC.argmax(-1), batch["labels"], batch["row_weights"])


LOSS = Loss(
    input_keys=("pixels",),
    compute_sums=compute_sums,
    weight_keys={
        "image_classification": "row_weights",
        "image_classification_accuracy": "row_weights",
    },
    loss_terms=("image_classification",),
    token_keys=("row_weights",),
    row_predictions=predict_rows,
)
