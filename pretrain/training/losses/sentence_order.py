"""Masked LM and sentence order: is segment A before segment B? (Lan et al. 2020, section 3.1)."""

from pretrain.training.losses.loss import make_pair_loss

LOSS = make_pair_loss("sentence_order")
