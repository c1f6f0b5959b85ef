"""The exponential running mean of the parameters (Polyak and Juditsky 1992), kept in the optimizer's state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class RunningMean(NamedTuple):
    """inner: the state of the optimizer itself; count: updates so far, int32; mean: of the parameters behind each, float32."""

    inner: Any
    count: jax.Array
    mean: Any


def with_running_mean(optimizer: optax.GradientTransformation, decay: float):
    """Return the optimizer, which also keeps the running mean of the parameters that its updates make.

    Behind update t = 1, 2, ... the mean moves towards the parameters by 1 - min(decay, (1 + t) / (10 + t)), so that the first
    parameters, which are noise, are soon forgotten. A step that is skipped leaves it as it was.
    """

    def init(params):
        mean = jax.tree.map(jnp.copy, params)
        return RunningMean(optimizer.init(params), jnp.zeros((), jnp.int32), mean)

    def update(updates, state, params=None):
        updates, inner = optimizer.update(updates, state.inner, params)
        count = state.count + 1
        t = count.astype(jnp.float32)
        share = 1.0 - jnp.minimum(decay, (1.0 + t) / (10.0 + t))
        mean = jax.tree.map(lambda m, p, u: m + share * (p + u - m), state.mean, params, updates)
        return updates, RunningMean(inner, count, mean)

    return optax.GradientTransformation(init, update)


def mean_params(optimizer_state):
    """Return the running mean in an optimizer's state, a tree as the parameters'."""
    return optax.tree.get(optimizer_state, RunningMean.__name__).mean
