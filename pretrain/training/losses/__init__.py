"""The training side of each objective: sums over targets, and the weights that they are divided by, once, at the end.

A mean of means over micro-batches or devices would weigh rows by how few targets they have. So nothing here divides: sums
add up over micro-batches, devices and evaluation batches alike, in float32.

Each objective of `data.objectives` has a module of its own name here, which holds its `LOSS`.
"""

import importlib

from pretrain.training.losses.base import DEFAULT_OPTIONS, Loss, LossOptions

__all__ = ["DEFAULT_OPTIONS", "Loss", "LossOptions", "find_loss"]


def find_loss(name: str) -> Loss:
    """Return the loss of the objective of that name: `LOSS` of the module of the same name."""
    return importlib.import_module(f"{__name__}.{name}").LOSS
