"""The loss of the class of a row, whose weight is that of its class (Devlin et al. 2018, section 4.1)."""

from pretrain.training.losses.terms import choice_loss

LOSS = choice_loss("classification", accuracy_weights="row_weights")
