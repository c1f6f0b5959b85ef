"""Span corruption: cross entropy of the dropped spans (Raffel et al. 2019, section 3.1.4).

Each span follows its sentinel.
"""

from pretrain.training.losses.loss import make_seq2seq_loss

LOSS = make_seq2seq_loss("span_corruption")
