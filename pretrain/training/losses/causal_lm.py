"""Causal language modelling: cross entropy of the next token (Radford et al. 2018, equation 1)."""

from functools import partial

from pretrain.training.losses.base import Loss
from pretrain.training.losses.terms import token_sums

LOSS = Loss(
    inputs=("token_ids",),
    optional=("is_continued",),
    score=partial(token_sums, "causal_lm"),
    weights={"causal_lm": "label_weights", "causal_lm_accuracy": "label_weights"},
    loss_terms=("causal_lm",),
    tokens=("label_weights",),
)
