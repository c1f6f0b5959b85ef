"""Classification: cross entropy of a row's class, weighted by class (Devlin et al. 2018, 4.1)."""

from pretrain.training.losses.terms import choice_loss

LOSS = choice_loss("classification", accuracy_weights="row_weights")
