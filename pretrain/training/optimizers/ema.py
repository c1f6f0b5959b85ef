"""The exponential moving average (EMA) of the parameters, part of the optimizer's state.

Polyak and Juditsky (1992).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class EmaState(NamedTuple):
    """The state of an optimizer with an EMA.

    Attributes:
      count: number of updates so far, int32.
      ema: average of the parameters after each update, float32.
    """

    inner: Any
    count: jax.Array
    ema: Any


def track_ema(
    optimizer: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
    """Return the optimizer with an EMA of the parameters after each update, frozen ones included.

    At update t = 1, 2, ... the average moves towards the parameters by
    1 - min(decay, (1 + t) / (10 + t)), so that the initial parameters, which are noise, are soon
    forgotten. A skipped step leaves the average unchanged.
    """

    def init_fn(params: optax.Params) -> EmaState:
        ema = jax.tree.map(jnp.copy, params)
        return EmaState(optimizer.init(params), jnp.zeros((), jnp.int32), ema)

    def update_fn(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, Any]:
        if params is None:
            raise ValueError(
                "the EMA of the parameters needs the parameters: update(updates, state, params)"
            )
        updates, inner = optimizer.update(updates, state.inner, params)
        count = state.count + 1
        t = count.astype(jnp.float32)
        share = 1.0 - jnp.minimum(decay, (1.0 + t) / (10.0 + t))
        ema = jax.tree.map(lambda e, p, u: e + share * (p + u - e), state.ema, params, updates)
        return updates, EmaState(inner, count, ema)

    return optax.GradientTransformation(init_fn, update_fn)


def get_ema_params(optimizer_state: optax.OptState) -> Any:
    """Return the EMA in an optimizer's state, a tree with the structure of the parameters."""
    return optax.tree.get(optimizer_state, EmaState.__name__).ema
