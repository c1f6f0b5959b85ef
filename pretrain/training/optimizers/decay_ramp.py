"""A weight decay that changes over the steps, of any optimizer that has one."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from pretrain.settings.optimizers import WeightDecay
from pretrain.training.schedules import BENDS, Count, Schedule


def ramp_weight_decay(config: WeightDecay, unit: float) -> Schedule:
    """Return the weight decay over `unit` as a function of n, the number of finished updates."""
    ramp = config.weight_decay_ramp
    assert ramp.start is not None  # as `find_weight_decay` sees
    start, end = ramp.start / unit, config.weight_decay / unit
    length = ramp.last_step - ramp.first_step

    def compute_decay(n: Count) -> jax.Array:
        remaining = jnp.clip((ramp.last_step - jnp.asarray(n, jnp.float32)) / length, 0, 1)
        return end + (start - end) * BENDS[ramp.shape](remaining)

    return compute_decay


def scale_weight_decay(config: Any, factor: float) -> Any:
    """Return an optimizer's configuration with a multiple of its weight decay at every step."""
    ramp, decay = config.weight_decay_ramp, config.weight_decay * factor
    if ramp.start is not None:
        ramp = dataclasses.replace(ramp, start=ramp.start * factor)
    return dataclasses.replace(config, weight_decay=decay, weight_decay_ramp=ramp)
