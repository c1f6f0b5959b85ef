"""Masked diffusion: cross entropy of the masked tokens, each with its weight, by the text's tokens.

Nie et al. (2025), section 2.2. The mean is a bound of the negative log-likelihood, in nats a token.
"""

from typing import Any

import jax

from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, compute_token_sums


def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the weighted sums of the masked tokens."""
    hidden_BPD, *_ = states
    return compute_token_sums("masked_diffusion", hidden_BPD, score_tokens, batch)


LOSS = Loss(
    input_keys=("token_ids", "attention_mask", "masked_positions"),
    optional_keys=("segment_ids",),
    compute_sums=compute_sums,
    # Of all tokens, masked or not: an expected sum of 1 / t times t.
    weight_keys=dict.fromkeys(("masked_diffusion", "masked_diffusion_accuracy"), "text_weights"),
    loss_terms=("masked_diffusion",),
    token_keys=("attention_mask",),
)
