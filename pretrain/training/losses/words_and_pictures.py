"""Masked words and visual tokens, and the alignment of caption and picture (Sun et al. 2019).

The alignment is predicted as BERT predicts the next sentence.
"""

from pretrain.training.losses.loss import make_pair_loss

LOSS = make_pair_loss("next_sentence")
