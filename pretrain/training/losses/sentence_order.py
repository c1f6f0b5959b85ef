"""The loss of masked words and of the order of two segments: does A stand before B? (Lan et al. 2020, section 3.1)."""

from pretrain.training.losses.terms import pair_loss

LOSS = pair_loss("sentence_order")
