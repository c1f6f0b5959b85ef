"""Tagging: cross entropy of a word's tag at its first subword (Devlin et al. 2018, section 5.3).

B batch   L length   C tags
"""

import jax
import jax.numpy as jnp

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.loss import Batch, Loss, ScoreTokens


def compute_sums(
    logits_BLC: jax.Array, score_tokens: ScoreTokens, batch: Batch
) -> dict[str, jax.Array]:
    """Return the weighted loss of the tags and the number of words with a correct tag."""
    loss_sum, _ = cross_entropy(
        logits_BLC, batch["labels"], batch["label_weights"], score_tokens.label_smoothing
    )
    _, num_correct = cross_entropy(logits_BLC, batch["labels"], batch["word_weights"])
    return {"tagging": loss_sum, "tagging_accuracy": num_correct}


def predict_rows(logits_BLC: jax.Array, batch: Batch) -> jax.Array:
    """Return the likeliest tag at each position, float32 [B, L + 1].

    A position without a label has -1. The last column is 1 for a row that counts, else 0. The
    labels are not part of the result: the store has them.
    """
    tags_BL = jnp.where(batch["word_weights"] > 0, logits_BLC.argmax(-1), -1).astype(jnp.float32)
    return jnp.concatenate([tags_BL, batch["row_weights"][:, None]], axis=1)


LOSS = Loss(
    input_keys=("token_ids", "attention_mask"),
    compute_sums=compute_sums,
    weight_keys={"tagging": "label_weights", "tagging_accuracy": "word_weights"},
    loss_terms=("tagging",),
    token_keys=("attention_mask",),
    optional_keys=("token_type_ids",),
    row_predictions=predict_rows,
)
