"""Masked patches: cross entropy of the mean color of each corrupted patch.

B batch   N patches   K mean colors
"""

import jax

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens


def compute_sums(
    logits_BNK: jax.Array, score_tokens: ScoreTokens, batch: Batch
) -> dict[str, jax.Array]:
    """Return the loss, and the number of corrupted patches whose mean color is predicted."""
    loss_sum, num_correct = cross_entropy(
        logits_BNK, batch["labels"], batch["label_weights"], score_tokens.label_smoothing
    )
    return {"masked_patches": loss_sum, "masked_patches_accuracy": num_correct}


LOSS = Loss(
    input_keys=("pixels", "patch_sources"),
    compute_sums=compute_sums,
    weight_keys={"masked_patches": "label_weights", "masked_patches_accuracy": "label_weights"},
    loss_terms=("masked_patches",),
    token_keys=("row_weights",),
)
