"""Span corruption: cross entropy of the dropped spans (Raffel et al. 2019, section 3.1.4).

Each span follows its sentinel.
"""

from pretrain.training.losses.terms import seq2seq_loss

LOSS = seq2seq_loss("span_corruption")
