"""Masked next-token prediction: each masked token is predicted at the position before it.

Charpentier and Samuel (2024), section 3.1.
"""

from functools import partial

from pretrain.training.losses.loss import Loss, compute_token_sums

LOSS = Loss(
    input_keys=("token_ids", "masked_positions"),
    compute_sums=partial(compute_token_sums, "masked_next_token"),
    weight_keys={
        "masked_next_token": "label_weights",
        "masked_next_token_accuracy": "label_weights",
    },
    loss_terms=("masked_next_token",),
    token_keys=("attention_mask",),
)
