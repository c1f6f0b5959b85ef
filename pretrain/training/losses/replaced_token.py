"""Replaced token detection: a masked LM generator and a discriminator of its tokens.

Clark et al. (2020), section 2.

B batch   L length   P predictions   D width
"""

from typing import Any

import jax
import jax.numpy as jnp

from pretrain.training.cross_entropy import binary_cross_entropy
from pretrain.training.losses.loss import (
    MASKED_LM_WEIGHTS,
    Batch,
    Loss,
    ScoreTokens,
    compute_token_sums,
)


def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the sums of the generator's masked tokens and of the discriminator's decisions."""
    hidden_BPD, logits_BL, replaced_BL = states
    weights_BL = batch["discriminator_weights"]
    loss_sum, num_correct = binary_cross_entropy(logits_BL, replaced_BL, weights_BL)
    return compute_token_sums("masked_lm", hidden_BPD, score_tokens, batch) | {
        "replaced_token": loss_sum,
        "replaced_token_accuracy": num_correct,
        # The error rate of a discriminator that takes every token for original.
        "replaced_token_share": jnp.where(replaced_BL, weights_BL, 0.0).sum(),
    }


LOSS = Loss(
    input_keys=(
        *("token_ids", "attention_mask", "masked_positions"),
        *("labels", "label_weights", "uniforms"),  # for sampling from the generator
    ),
    optional_keys=("segment_ids",),
    compute_sums=compute_sums,
    weight_keys=MASKED_LM_WEIGHTS
    | {
        "replaced_token": "discriminator_weights",
        "replaced_token_accuracy": "discriminator_weights",
        "replaced_token_share": "discriminator_weights",
    },
    loss_terms=("masked_lm", "replaced_token"),
    token_keys=("attention_mask",),
    loss_weights={"replaced_token": 50.0},  # the paper's lambda (appendix A)
)
