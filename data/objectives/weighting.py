"""How much a target of each class weighs in the loss: a sum of weighted terms, divided once by the sum of their weights."""

import numpy as np


def check_weights(objective):
    """Raise a ValueError unless each of an objective's `class_weights` is a positive number; () are all alike."""
    if not all(0 < weight < np.inf for weight in objective.class_weights):
        raise ValueError(
            f"{objective.name}: class_weights={objective.class_weights}; each is above 0"
        )


def weight_of(objective, count):
    """The weight of each class of a store, float32 [count or more]. Raises ValueError where there are more classes than weights."""
    weights = objective.class_weights or (1.0,) * int(count)
    if len(weights) < count:
        raise ValueError(f"class_weights={weights}: {len(weights)} weights for more classes")
    return np.array(weights, np.float32)
