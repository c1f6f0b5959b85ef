"""Optimizers that leave some parameters as they are."""

import re

import jax
import jax.numpy as jnp
import optax

from pretrain.distributed.sharding import path_of


def freeze_params(optimizer, prefixes):
    """Return the optimizer without the parameters whose paths begin so: no update, no weight decay, and no state for them."""

    def label_params(params):
        return jax.tree_util.tree_map_with_path(
            lambda keys, _: "frozen" if path_of(keys).startswith(prefixes) else "trained", params
        )

    return optax.partition({"trained": optimizer, "frozen": optax.set_to_zero()}, label_params)


def freeze_lower_layers(optimizer, depth, trainable_layers):
    """Return the optimizer that trains an encoder's pooler, the upper `trainable_layers` of its `depth` layers, and what is no encoder.

    State is kept for all of it. Gradients of what is frozen do not count for the clipped norm.
    """

    def zero(updates, params):
        return zero_frozen(updates, depth, trainable_layers)

    return optax.chain(optax.stateless(zero), optimizer, optax.stateless(zero))


def zero_frozen(updates, depth, trainable_layers):
    """Return the updates with zeros for the encoder but its pooler and the upper `trainable_layers` of its `depth` layers."""

    def mask(keys, update):
        path = path_of(keys)
        if not path.startswith("encoder/") or "/pooler/" in path:
            return update
        if match := re.search(r"/layer_(\d+)/", path):
            return update if int(match[1]) >= depth - trainable_layers else jnp.zeros_like(update)
        if "/layers/" not in path:
            return jnp.zeros_like(update)
        trained = jnp.arange(depth) >= depth - trainable_layers
        trained = trained.reshape(-1, *(1,) * (update.ndim - 1))
        return jnp.where(trained, update, jnp.zeros_like(update))

    return jax.tree_util.tree_map_with_path(mask, updates)
