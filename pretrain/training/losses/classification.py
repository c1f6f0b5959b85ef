"""Classification: cross entropy of a row's class, weighted by class.

Devlin et al. (2018), section 4.1.
"""

from pretrain.training.losses.loss import make_choice_loss

LOSS = make_choice_loss("classification", accuracy_weights="row_weights")
