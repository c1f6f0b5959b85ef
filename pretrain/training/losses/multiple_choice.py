"""Multiple choice: cross entropy of the correct choice (Devlin et al. 2018, section 4.4)."""

from pretrain.training.losses.loss import make_choice_loss

LOSS = make_choice_loss("multiple_choice", accuracy_weights="label_weights")
