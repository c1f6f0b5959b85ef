"""Denoising: cross entropy of the original text (Lewis et al. 2020, section 2.2)."""

from pretrain.training.losses.loss import make_seq2seq_loss

LOSS = make_seq2seq_loss("denoising")
