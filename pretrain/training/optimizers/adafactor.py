"""Adafactor (Shazeer and Stern 2018) as T5 used it."""

import optax


def build(config, learning_rate):
    """Return the optax transformation of an `Adafactor` configuration."""
    return optax.adafactor(learning_rate, clipping_threshold=config.clipping_threshold)
