"""LAMB (You et al. 2020, algorithm 2): AdamW with updates scaled to the norm of each weight."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from pretrain.mesh.sharding import format_path
from pretrain.settings import Lamb
from pretrain.training.optimizers.transforms import (
    clip_by_global_norm,
    find_weight_decay,
    is_decayed,
    list_axes,
    make_weight_decay_mask,
)
from pretrain.training.schedules import Schedule


def build(config: Lamb, learning_rate: Schedule) -> optax.GradientTransformation:
    """Return the optax transformation of a `Lamb` configuration."""
    return optax.chain(
        clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(find_weight_decay(config), make_weight_decay_mask),
        optax.stateless(scale_to_weight_norm),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_to_weight_norm(updates: optax.Updates, params: optax.Params | None) -> optax.Updates:
    """Return each update scaled to the L2 norm of its parameter, if weight decay applies to it.

    Each layer of a scanned stack is scaled by itself.
    """

    def scale_leaf(keys: tuple[Any, ...], update: jax.Array, weight: jax.Array) -> jax.Array:
        if not is_decayed(format_path(keys)):
            return update
        axes = list_axes(keys, update.ndim)
        update_norm, weight_norm = (
            jnp.sqrt(jnp.square(x).sum(axes, keepdims=True)) for x in (update, weight)
        )
        return update * jnp.where(
            (update_norm > 0) & (weight_norm > 0),
            weight_norm / jnp.where(update_norm > 0, update_norm, 1.0),
            1.0,
        )

    return jax.tree_util.tree_map_with_path(scale_leaf, updates, params)
