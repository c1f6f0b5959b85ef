"""Masked next-token prediction: each masked token is predicted at the position before it.

Charpentier and Samuel (2024), section 3.1.
"""

from functools import partial

from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import token_sums

LOSS = Loss(
    inputs=("token_ids", "masked_positions"),
    score=partial(token_sums, "masked_next_token"),
    weights={"masked_next_token": "label_weights", "masked_next_token_accuracy": "label_weights"},
    loss_terms=("masked_next_token",),
    tokens=("attention_mask",),
)
