"""Permutation LM: cross entropy of the predicted tokens (Yang et al. 2019, equation 5).

The model's query stream gives their states, which do not depend on the tokens themselves.

B batch   P predictions   D width
"""

from typing import Any

import jax

from pretrain.training.losses.loss import Batch, Loss, ScoreTokens, compute_token_sums


def compute_sums(states: Any, score_tokens: ScoreTokens, batch: Batch) -> dict[str, jax.Array]:
    """Return the sums of the predicted tokens."""
    hidden_BPD, *_ = states
    return compute_token_sums("permutation_lm", hidden_BPD, score_tokens, batch)


LOSS = Loss(
    input_keys=("token_ids", "attention_mask", "permutation_ranks", "masked_positions"),
    optional_keys=("token_type_ids", "is_continued"),
    compute_sums=compute_sums,
    weight_keys={"permutation_lm": "label_weights", "permutation_lm_accuracy": "label_weights"},
    loss_terms=("permutation_lm",),
    token_keys=("attention_mask",),
)
