"""Masked LM: cross entropy of the masked tokens (Devlin et al. 2018, section 3.1, task 1).

B batch   P predictions   D width
"""

from typing import Any

import jax

from pretrain.training.losses.base import Batch, Loss, ScoreTokens
from pretrain.training.losses.terms import MASKED_LM_WEIGHTS, token_sums


def score(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the sums of the masked tokens."""
    hidden_BPD, *_ = states
    return token_sums("masked_lm", hidden_BPD, score_tokens, batch)


LOSS = Loss(
    inputs=("token_ids", "attention_mask", "masked_positions"),
    optional=("segment_ids",),
    score=score,
    weights=MASKED_LM_WEIGHTS,
    loss_terms=("masked_lm",),
    tokens=("attention_mask",),
)
