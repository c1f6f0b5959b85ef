"""Schedules of the learning rate as functions of n, the number of finished updates.

Every schedule takes n, an int or an integer array that may be traced, and the same four settings,
and returns a float32 scalar:

  peak          largest value
  warmup_steps  number of updates over which the value rises
  decay_steps   the update from which the value stays at its end
  end_ratio     the end value as a share of the peak

`cool_down` takes the length and the shape of the cooldown besides. The value rises as
(n + 1) / warmup_steps, so that no update has a learning rate of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from pretrain.settings import Optimizer
from pretrain.settings.overrides import ConfigError

Count = jax.typing.ArrayLike
Schedule = Callable[[Count], jax.Array]


def _fall_linearly(remaining: jax.Array) -> jax.Array:
    return remaining


def _ease_out(remaining: jax.Array) -> jax.Array:
    return (1 - jnp.cos(jnp.pi * remaining)) / 2


def _fall_by_root(remaining: jax.Array) -> jax.Array:
    return 1 - jnp.sqrt(1 - remaining)


# How a decay bends: each maps the remaining share of the decay, which falls from 1 to 0, to the
# share of the way between end and peak. The keys are the values of an optimizer's `cooldown_shape`.
BENDS = {"linear": _fall_linearly, "cosine": _ease_out, "1-sqrt": _fall_by_root}


def decay_linearly(
    n: Count, *, peak: float, warmup_steps: int, decay_steps: int, end_ratio: float
) -> jax.Array:
    """Return the warmup, then a straight line to the end (Devlin et al. 2018, appendix A.2)."""
    return _warm_up_and_decay(n, _fall_linearly, peak, warmup_steps, decay_steps, end_ratio)


def decay_by_cosine(
    n: Count, *, peak: float, warmup_steps: int, decay_steps: int, end_ratio: float
) -> jax.Array:
    """Return the warmup, then half a cosine to the end (Loshchilov and Hutter 2017)."""
    return _warm_up_and_decay(n, _ease_out, peak, warmup_steps, decay_steps, end_ratio)


def cool_down(
    n: Count,
    *,
    peak: float,
    warmup_steps: int,
    decay_steps: int,
    end_ratio: float,
    cooldown_steps: int,
    cooldown_shape: str,
) -> jax.Array:
    """Return the warmup, the peak, then a decay in the last `cooldown_steps` of `decay_steps`.

    Warmup, stable, decay (Hu et al. 2024, section 4); 1-sqrt is from Hägele et al. (2024).
    """

    def bend(remaining: jax.Array) -> jax.Array:
        return BENDS[cooldown_shape](jnp.minimum(remaining, 1))

    start = decay_steps - cooldown_steps
    return _warm_up_and_decay(n, bend, peak, warmup_steps, decay_steps, end_ratio, start)


def _warm_up_and_decay(
    n: Count,
    bend: Callable[[jax.Array], jax.Array],
    peak: float,
    warmup_steps: int,
    decay_steps: int,
    end_ratio: float,
    start: int | None = None,
) -> jax.Array:
    """Return the warmup, then a decay along `bend` from `start`, the end of the warmup, on."""
    n = jnp.asarray(n, jnp.float32)
    warmup_steps = min(warmup_steps, decay_steps - 1)
    warmup = (n + 1) / max(warmup_steps, 1)
    length = decay_steps - (warmup_steps if start is None else start)
    decay = bend(jnp.maximum(decay_steps - n, 0) / length)
    return peak * jnp.where(n < warmup_steps, warmup, end_ratio + (1 - end_ratio) * decay)


def stay_constant(
    n: Count, *, peak: float, warmup_steps: int, decay_steps: int, end_ratio: float
) -> jax.Array:
    """Return the warmup, then the peak without an end."""
    n = jnp.asarray(n, jnp.float32) + 1
    return peak * jnp.minimum(n / max(warmup_steps, 1), 1)


def decay_by_inverse_square_root(
    n: Count, *, peak: float, warmup_steps: int, decay_steps: int, end_ratio: float
) -> jax.Array:
    """Return the warmup, then peak * sqrt(warmup_steps / (n + 1)).

    Vaswani et al. (2017), section 5.3. It has no end. The Transformer's peak is
    1 / sqrt(D * warmup_steps) for a model of width D.
    """
    n = jnp.asarray(n, jnp.float32) + 1
    return peak * jnp.minimum(n / max(warmup_steps, 1), jax.lax.rsqrt(n / max(warmup_steps, 1)))


def decay_by_rsqrt(
    n: Count, *, peak: float, warmup_steps: int, decay_steps: int, end_ratio: float
) -> jax.Array:
    """Return peak / sqrt(max(n, warmup_steps)) (Raffel et al. 2019, section 3.1.2).

    It is constant at first, with no warmup.
    """
    return peak * jax.lax.rsqrt(jnp.maximum(n, max(warmup_steps, 1)).astype(jnp.float32))


# The keys are the values of an optimizer's `decay`.
SCHEDULES = {
    "linear": decay_linearly,
    "cosine": decay_by_cosine,
    "inverse_square_root": decay_by_inverse_square_root,
    "rsqrt": decay_by_rsqrt,
    "constant": stay_constant,
    "wsd": cool_down,
}


def make_schedule(name: str, **settings: float | str) -> Schedule:
    """Return the schedule `name` with its settings. Raises ConfigError for an unknown name."""
    if name not in SCHEDULES:
        raise ConfigError(
            f"no schedule is named {name!r}; the schedules are {', '.join(SCHEDULES)}"
        )
    return partial(SCHEDULES[name], **settings)


def make_learning_rate(config: Optimizer, steps: int) -> Schedule:
    """Return the learning rate of an optimizer's configuration for a run of `steps`."""
    end, cooldown = config.find_decay(steps)
    settings = {"cooldown_steps": cooldown, "cooldown_shape": config.cooldown_shape}
    return make_schedule(
        config.decay,
        peak=config.learning_rate,
        warmup_steps=config.warmup_steps,
        decay_steps=end,
        end_ratio=config.end_lr_ratio,
        **(settings if config.decay == "wsd" else {}),
    )
