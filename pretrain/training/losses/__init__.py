"""The losses of the objectives: sums over targets, and the weights that divide them at the end.

A mean of means over microbatches or devices would weight rows by how few targets they have. So
nothing here divides: sums are added up over microbatches, devices and evaluation batches alike, in
float32.

Each objective of `data.objectives` has a module of the same name here, which defines its `LOSS`.
"""

import importlib

from data.mixed import Mixed
from data.objectives.objective import Objective
from pretrain.training.losses.loss import DEFAULT_OPTIONS, Loss, LossOptions
from pretrain.training.losses.mixed import MixedLoss

__all__ = ["DEFAULT_OPTIONS", "Loss", "LossOptions", "MixedLoss", "find_loss", "make_loss"]


def find_loss(name: str) -> Loss:
    """Return the loss of the objective `name` with its default settings: `LOSS` of its module."""
    return importlib.import_module(f"{__name__}.{name}").LOSS


def configure_loss(objective: Objective) -> Loss:
    """Return the loss of an objective's settings."""
    loss = find_loss(objective.name)
    return loss.configure(objective) if loss.configure else loss


def make_loss(objective: Objective | Mixed) -> Loss | MixedLoss:
    """Return the loss of an objective or of a mixture of objectives."""
    if not isinstance(objective, Mixed):
        return configure_loss(objective)
    losses = {part.name: configure_loss(part.objective) for part in objective.parts}
    return MixedLoss(losses, objective.compute_loss_weights())
