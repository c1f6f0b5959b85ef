"""Masked LM and next sentence: does B follow A? (Devlin et al. 2018, section 3.1, tasks 1, 2)."""

from pretrain.training.losses.loss import make_pair_loss

LOSS = make_pair_loss("next_sentence")
