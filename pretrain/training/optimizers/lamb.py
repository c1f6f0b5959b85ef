"""LAMB (You et al. 2020, algorithm 2): AdamW whose update of each weight is as long as the weight, times the rate."""

import jax
import jax.numpy as jnp
import optax

from pretrain.distributed.sharding import path_of
from pretrain.training.optimizers.transforms import (
    clip_by_global_norm,
    is_decayed,
    weight_decay_mask,
)


def build(config, learning_rate):
    """Return the optax transformation of a `Lamb` configuration."""
    return optax.chain(
        clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_adam(config.beta1, config.beta2, config.epsilon),
        optax.add_decayed_weights(config.weight_decay, weight_decay_mask),
        optax.stateless(scale_to_weight_norm),
        optax.scale_by_learning_rate(learning_rate),
    )


def scale_to_weight_norm(updates, params):
    """Return each update scaled to the length of its parameter, where weight decay applies; each layer of a scanned stack by itself."""

    def scale(keys, update, weight):
        path = path_of(keys)
        if not is_decayed(path):
            return update
        dims = tuple(range("/layers/" in f"/{path}", update.ndim))
        update_norm, weight_norm = (
            jnp.sqrt(jnp.square(x).sum(dims, keepdims=True)) for x in (update, weight)
        )
        return update * jnp.where(
            (update_norm > 0) & (weight_norm > 0),
            weight_norm / jnp.where(update_norm > 0, update_norm, 1.0),
            1.0,
        )

    return jax.tree_util.tree_map_with_path(scale, updates, params)
