"""Adafactor (Shazeer and Stern 2018) as T5 used it."""

import optax

from pretrain.schema import Adafactor
from pretrain.training.schedules import Schedule


def build(config: Adafactor, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of an `Adafactor` configuration."""
    return optax.adafactor(learning_rate, clipping_threshold=config.clipping_threshold)
