"""Class weights: the loss is a weighted sum of terms, divided by the sum of the weights."""

from typing import Any

import numpy as np


def check_weights(objective: Any) -> None:
    """Raise a ValueError unless all `class_weights` are positive; () weighs all classes equally."""
    if not all(0 < weight < np.inf for weight in objective.class_weights):
        raise ValueError(
            f"{objective.name}: class_weights={objective.class_weights}; each is above 0"
        )


def read_class_numbers(labels: np.ndarray) -> np.ndarray:
    """Return labels as numbers of classes, int32; raise ValueError for scores."""
    labels = np.asarray(labels)
    is_wrong = ~((0 <= labels) & (labels < 1 << 30) & (labels == np.floor(labels)))
    if is_wrong.any():
        i = int(is_wrong.argmax())
        raise ValueError(
            f"label {i:,} is {labels[i]:g}, which is not the number of a class: its labels are "
            "scores; choose an objective of scores"
        )
    return labels.astype(np.int32)


def get_class_weights(objective: Any, num_classes: int) -> np.ndarray:
    """Return the weight of each class of a store: float32 [num_classes or more], the least is 1.

    Only their ratios matter. A training step divides by the sum of a batch's weights, but not by
    less than 1, so no batch with a label may have less.

    Raises:
      ValueError: there are more classes than weights.
    """
    weights = objective.class_weights
    if not weights:  # a view of one number, so that a wrong label takes no memory
        return np.broadcast_to(np.float32(1), int(num_classes))
    if len(weights) < num_classes:
        raise ValueError(
            f"class_weights={weights}: {len(weights)} weights for more classes; the store has "
            f"{num_classes}: give a weight for each"
        )
    return np.array(weights, np.float32) / np.float32(min(weights))
