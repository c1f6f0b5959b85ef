"""Prefix LM: cross entropy of the rest of a text (Raffel et al. 2019, section 3.3.1)."""

from pretrain.training.losses.terms import seq2seq_loss

LOSS = seq2seq_loss("prefix_lm")
