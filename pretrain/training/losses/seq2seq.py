"""Sequence to sequence: cross entropy of each target given its source (Vaswani et al. 2017)."""

from pretrain.training.losses.loss import make_seq2seq_loss

LOSS = make_seq2seq_loss("seq2seq", optional=("encoder_segment_ids", "decoder_segment_ids"))
