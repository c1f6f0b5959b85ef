"""The loss of the tag of a word, at its first piece (Devlin et al. 2018, section 5.3).

B batch   L length   C tags
"""

import jax.numpy as jnp

from pretrain.training.cross_entropy import cross_entropy
from pretrain.training.losses.base import Loss


def score(logits_BLC, score_tokens, batch):
    """Return the sums of the tags: the loss by their weights, the correct ones by words."""
    loss_sum, _ = cross_entropy(logits_BLC, batch["labels"], batch["label_weights"])
    _, num_correct = cross_entropy(logits_BLC, batch["labels"], batch["word_weights"])
    return {"tagging": loss_sum, "tagging_accuracy": num_correct}


def predict_rows(logits_BLC, batch):
    """Return float32 [B, L + 1]: the likeliest tag at each position, -1 where none is asked, and last 1 if the row counts.

    What is right, the store knows.
    """
    tags_BL = jnp.where(batch["word_weights"] > 0, logits_BLC.argmax(-1), -1).astype(jnp.float32)
    return jnp.concatenate([tags_BL, batch["row_weights"][:, None]], axis=1)


LOSS = Loss(
    inputs=("token_ids", "attention_mask"),
    score=score,
    weights={"tagging": "label_weights", "tagging_accuracy": "word_weights"},
    loss_terms=("tagging",),
    tokens=("attention_mask",),
    row_predictions=predict_rows,
)
