"""The loss of the dropped spans, each behind its sentinel (Raffel et al. 2019, section 3.1.4)."""

from pretrain.training.losses.terms import seq2seq_loss

LOSS = seq2seq_loss("span_corruption")
