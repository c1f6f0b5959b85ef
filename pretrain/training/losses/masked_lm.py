"""Masked LM: cross entropy of the masked tokens (Devlin et al. 2018, section 3.1, task 1).

B batch   P predictions   D width
"""

from typing import Any

import jax

from pretrain.training.losses.loss import (
    MASKED_LM_WEIGHTS,
    Batch,
    Loss,
    ScoreTokens,
    compute_token_sums,
)


def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the sums of the masked tokens."""
    hidden_BPD, *_ = states
    return compute_token_sums("masked_lm", hidden_BPD, score_tokens, batch)


LOSS = Loss(
    input_keys=("token_ids", "attention_mask", "masked_positions"),
    optional_keys=("segment_ids",),
    compute_sums=compute_sums,
    weight_keys=MASKED_LM_WEIGHTS,
    loss_terms=("masked_lm",),
    token_keys=("attention_mask",),
)
