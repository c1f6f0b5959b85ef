"""The exponential moving average (EMA) of the parameters (Polyak and Juditsky 1992), kept in the optimizer's state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class EmaState(NamedTuple):
    """inner: the state of the optimizer itself; count: updates so far, int32; ema: average of the parameters behind each update, float32."""

    inner: Any
    count: jax.Array
    ema: Any


def with_ema(optimizer: optax.GradientTransformation, decay: float) -> optax.GradientTransformation:
    """Return the optimizer, which also keeps the EMA of the parameters that its updates make, frozen ones included.

    Behind update t = 1, 2, ... the average moves towards the parameters by 1 - min(decay, (1 + t) / (10 + t)), so that the first
    parameters, which are noise, are soon forgotten. A step that is skipped leaves it as it was.
    """

    def init(params):
        ema = jax.tree.map(jnp.copy, params)
        return EmaState(optimizer.init(params), jnp.zeros((), jnp.int32), ema)

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("the EMA of the parameters needs them: update(updates, state, params)")
        updates, inner = optimizer.update(updates, state.inner, params)
        count = state.count + 1
        t = count.astype(jnp.float32)
        share = 1.0 - jnp.minimum(decay, (1.0 + t) / (10.0 + t))
        ema = jax.tree.map(lambda e, p, u: e + share * (p + u - e), state.ema, params, updates)
        return updates, EmaState(inner, count, ema)

    return optax.GradientTransformation(init, update)


def ema_params(optimizer_state):
    """Return the EMA in an optimizer's state, a tree as the parameters'."""
    return optax.tree.get(optimizer_state, EmaState.__name__).ema
