"""Prefix LM: cross entropy of the rest of a text (Raffel et al. 2019, section 3.3.1)."""

from pretrain.training.losses.loss import make_seq2seq_loss

LOSS = make_seq2seq_loss("prefix_lm")
