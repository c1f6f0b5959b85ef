"""Optimizers that leave some parameters unchanged."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pretrain.mesh.sharding import format_path


def freeze_params(
    optimizer: optax.GradientTransformation, prefixes: tuple[str, ...]
) -> optax.GradientTransformation:
    """Return the optimizer without the parameters whose paths begin with one of `prefixes`.

    They have no update, no weight decay and no optimizer state.
    """

    def label_params(params: optax.Params) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda keys, _: "frozen" if format_path(keys).startswith(prefixes) else "trained",
            params,
        )

    return optax.partition({"trained": optimizer, "frozen": optax.set_to_zero()}, label_params)


def freeze_lower_layers(
    optimizer: optax.GradientTransformation, depth: int, num_trained: int
) -> optax.GradientTransformation:
    """Return the optimizer that trains the upper `num_trained` of the `depth` entries of a stack.

    It also trains the encoder's pooler and all parameters outside the encoder. The state covers all
    parameters. Gradients of frozen parameters do not count in the clipped norm.
    """

    def zero_updates(updates: optax.Updates, params: optax.Params | None) -> optax.Updates:
        return zero_frozen(updates, depth, num_trained)

    return optax.chain(optax.stateless(zero_updates), optimizer, optax.stateless(zero_updates))


def zero_frozen(updates: optax.Updates, depth: int, num_trained: int) -> optax.Updates:
    """Return the updates with zeros for the parameters that `freeze_lower_layers` freezes."""

    def zero_leaf(keys: tuple[Any, ...], update: jax.Array) -> jax.Array:
        selected = select_trained(format_path(keys), depth, num_trained)
        if selected is True:
            return update
        if selected is False:
            return jnp.zeros_like(update)
        selected = selected.reshape(-1, *(1,) * (update.ndim - 1))
        return jnp.where(selected, update, jnp.zeros_like(update))

    return jax.tree_util.tree_map_with_path(zero_leaf, updates)


def select_trained(path: str, depth: int, num_trained: int) -> bool | np.ndarray:
    """Return whether `freeze_lower_layers` trains a parameter; of a stack, bool [depth]."""
    if not path.startswith("encoder/") or "/pooler/" in path:
        return True
    if match := re.search(r"/layer_(\d+)/", path):
        return int(match[1]) >= depth - num_trained
    return np.arange(depth) >= depth - num_trained if "/layers/" in path else False
