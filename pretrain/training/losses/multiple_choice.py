"""The loss of the right one of a question's choices (Devlin et al. 2018, section 4.4)."""

from pretrain.training.losses.terms import choice_loss

LOSS = choice_loss("multiple_choice", accuracy_weights="label_weights")
