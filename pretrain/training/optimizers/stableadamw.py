"""StableAdamW (Wortsman et al. 2023, section 3.5): AdamW with a rate that each gradient limits."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pretrain.mesh.sharding import format_path
from pretrain.settings import StableAdamW
from pretrain.training.optimizers.transforms import (
    clip_by_global_norm,
    find_weight_decay,
    is_decayed,
    list_axes,
)
from pretrain.training.schedules import Schedule


class StableAdamState(NamedTuple):
    """The state of `scale_by_stable_adam`.

    Attributes:
      count: number of updates so far, int32.
      mu: mean of the gradients, without bias.
      nu: mean of their squares, without bias.
    """

    count: jax.Array
    mu: Any
    nu: Any


def build(config: StableAdamW, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of a `StableAdamW` configuration."""
    unit = (config.decoupled and config.learning_rate) or 1.0
    decay = find_weight_decay(config, unit)
    return optax.chain(
        clip_by_global_norm(config.max_grad_norm),
        scale_by_stable_adam(config.beta1, config.beta2, config.epsilon, decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_by_stable_adam(
    beta1: float, beta2: float, epsilon: float, weight_decay: float | Schedule
) -> optax.GradientTransformation:
    """Return Adam's updates with weight decay, each divided by the size of its gradient.

    The size is the root mean square of gradient / max(sqrt(nu), epsilon) over a parameter, at least
    1. Each layer of a scanned stack has its own, as an unscanned layer has. Queries, keys and
    values are three parameters here; the authors' code fuses them into one.
    """

    def init_fn(params: optax.Params) -> StableAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return StableAdamState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update_fn(
        updates: optax.Updates, state: Any, params: optax.Params | None = None
    ) -> tuple[optax.Updates, Any]:
        count = state.count + 1
        decay = weight_decay(state.count) if callable(weight_decay) else weight_decay
        share1, share2 = ((1 - beta) / (1 - beta**count) for beta in (beta1, beta2))
        mu = jax.tree.map(lambda m, g: m + share1 * (g - m), state.mu, updates)
        nu = jax.tree.map(lambda v, g: v + share2 * (g * g - v), state.nu, updates)

        def scale_leaf(
            keys: tuple[Any, ...], grad: jax.Array, m: jax.Array, v: jax.Array, param: jax.Array
        ) -> jax.Array:
            squares = grad * grad / jnp.maximum(v, epsilon * epsilon)
            size = jnp.sqrt(squares.mean(list_axes(keys, grad.ndim), keepdims=True))
            step = m / (jnp.sqrt(v) + epsilon)
            if is_decayed(format_path(keys)):
                step = step + decay * param
            return step / jnp.maximum(1.0, size)

        scaled = jax.tree_util.tree_map_with_path(scale_leaf, updates, mu, nu, params)
        return scaled, StableAdamState(count, mu, nu)

    return optax.GradientTransformation(init_fn, update_fn)
