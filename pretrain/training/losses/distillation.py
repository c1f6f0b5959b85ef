"""Distillation: the masked LM loss and the distance from a teacher (Sanh et al. 2019, section 2).

B batch   L length   P predictions   D width
"""

from typing import Any

import jax
import jax.numpy as jnp

from pretrain.training.losses.loss import (
    MASKED_LM_WEIGHTS,
    Batch,
    Loss,
    ScoreTokens,
    compute_token_sums,
)


def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the sums of the masked tokens, of the teacher's predictions, and of its states."""
    hidden_BPD, distillation = states
    return compute_token_sums("masked_lm", hidden_BPD, score_tokens, batch) | {
        "distillation": (distillation.divergence_BP * batch["label_weights"]).sum(),
        "states": jnp.where(
            batch["attention_mask"], distillation.cosine_loss_BL * batch["state_weights"], 0.0
        ).sum(),
    }


LOSS = Loss(
    input_keys=("token_ids", "attention_mask", "masked_positions"),
    optional_keys=("segment_ids",),
    compute_sums=compute_sums,
    weight_keys=MASKED_LM_WEIGHTS | {"distillation": "label_weights", "states": "state_weights"},
    loss_terms=("masked_lm", "distillation", "states"),
    token_keys=("attention_mask",),
    # The weights in the authors' commands; the paper gives none.
    loss_weights={"masked_lm": 2.0, "distillation": 5.0},
)
