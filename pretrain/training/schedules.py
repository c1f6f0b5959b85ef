"""Schedules: quantities that follow n, the number of finished updates; the learning rate is one of them.

Every schedule takes n, an int or an integer array that may be traced, and the same four settings, and returns a float32 scalar:

  peak          the largest value
  warmup_steps  updates over which the value climbs
  decay_steps   the update from which the value stays at its end
  end_ratio     the end, as a share of the peak

The climb is (n + 1) / warmup_steps, so that neither the first nor the last update is wasted on a value of 0.
"""

from functools import partial

import jax
import jax.numpy as jnp

from pretrain.overrides import ConfigError


def decay_linearly(n, *, peak, warmup_steps, decay_steps, end_ratio):
    """Return the climb, then a straight line from the peak to its end (Devlin et al. 2018, A.2)."""
    return _climb_and_fall(n, lambda left: left, peak, warmup_steps, decay_steps, end_ratio)


def decay_by_cosine(n, *, peak, warmup_steps, decay_steps, end_ratio):
    """Return the climb, then half a cosine from the peak to its end (Loshchilov and Hutter 2017)."""

    def bend(left):
        return (1 - jnp.cos(jnp.pi * left)) / 2

    return _climb_and_fall(n, bend, peak, warmup_steps, decay_steps, end_ratio)


def _climb_and_fall(n, bend, peak, warmup_steps, decay_steps, end_ratio):
    """Return the climb, then peak times `bend` of what is left: from 1 after it to 0 at `decay_steps`."""
    n = jnp.asarray(n, jnp.float32)
    warmup_steps = min(warmup_steps, decay_steps - 1)
    climb = (n + 1) / max(warmup_steps, 1)
    left = bend(jnp.maximum(decay_steps - n, 0) / (decay_steps - warmup_steps))
    return peak * jnp.where(n < warmup_steps, climb, end_ratio + (1 - end_ratio) * left)


def decay_by_inverse_square_root(n, *, peak, warmup_steps, decay_steps, end_ratio):
    """Return the climb, then peak * sqrt(warmup_steps / (n + 1)) without end (Vaswani et al. 2017, section 5.3).

    The Transformer's peak is 1 / sqrt(D * warmup_steps), D being the model's width.
    """
    n = jnp.asarray(n, jnp.float32) + 1
    return peak * jnp.minimum(n / max(warmup_steps, 1), jax.lax.rsqrt(n / max(warmup_steps, 1)))


def decay_by_rsqrt(n, *, peak, warmup_steps, decay_steps, end_ratio):
    """Return peak / sqrt(max(n, warmup_steps)): constant at first, and no climb (Raffel et al. 2019, section 3.1.2)."""
    return peak * jax.lax.rsqrt(jnp.maximum(n, max(warmup_steps, 1)).astype(jnp.float32))


# By the names that a configuration's `decay` has.
SCHEDULES = {
    "linear": decay_linearly,
    "cosine": decay_by_cosine,
    "inverse_square_root": decay_by_inverse_square_root,
    "rsqrt": decay_by_rsqrt,
}


def make_schedule(name, **settings):
    """Return the function of n that `name` and the four settings describe. Raises ConfigError for an unknown name."""
    if name not in SCHEDULES:
        raise ConfigError(f"no schedule is named {name!r}; there are {', '.join(SCHEDULES)}")
    return partial(SCHEDULES[name], **settings)


def make_learning_rate(config, steps):
    """Return the learning rate of an optimizer's configuration as a function of n, for a run of `steps`."""
    return make_schedule(
        config.decay,
        peak=config.learning_rate,
        warmup_steps=config.warmup_steps,
        decay_steps=config.decay_steps or steps,
        end_ratio=config.end_lr_ratio,
    )
