"""Text to text: cross entropy of an answer (Raffel et al. 2019, section 2.4)."""

from pretrain.training.losses.loss import make_seq2seq_loss

LOSS = make_seq2seq_loss("text2text")
