"""Causal language modelling: cross entropy of the next token (Radford et al. 2018, equation 1)."""

from functools import partial

from pretrain.training.losses.loss import Loss, compute_token_sums

LOSS = Loss(
    input_keys=("token_ids",),
    optional_keys=("is_continued", "segment_ids"),
    compute_sums=partial(compute_token_sums, "causal_lm"),
    weight_keys={"causal_lm": "label_weights", "causal_lm_accuracy": "label_weights"},
    loss_terms=("causal_lm",),
    token_keys=("label_weights",),
)
