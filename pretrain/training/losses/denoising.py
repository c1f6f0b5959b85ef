"""Denoising: cross entropy of the original text (Lewis et al. 2020, section 2.2)."""

from pretrain.training.losses.terms import seq2seq_loss

LOSS = seq2seq_loss("denoising")
