"""Optimizers that leave some parameters unchanged."""

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.config.heads import HeadedConfig
from models.layers.lora import LORA_A, LORA_B
from pretrain.config import Run
from pretrain.families.fine_tuning import is_outside_layers
from pretrain.mesh.sharding import format_path
from pretrain.training.optimizers import count_entries


def make_frozen_test(run: Run) -> Callable[[str], bool]:
    """Return a function of a parameter's path: whether it is frozen and has no optimizer state.

    LoRA trains its factors, and of a fine-tuned encoder the pooler and the head.
    """
    prefixes, has_lora = tuple(run.model.frozen_params), run.train.lora_rank is not None
    has_head = isinstance(run.model, HeadedConfig)

    def is_frozen(path: str) -> bool:
        if path.startswith(prefixes):
            return True
        is_head = has_head and is_outside_layers(path)
        return has_lora and not (is_head or path.endswith((LORA_A, LORA_B)))

    return is_frozen


def count_trained(run: Run, params: Any) -> int:
    """Return the number of parameters that the optimizer of a run updates."""
    total, is_frozen = 0.0, make_frozen_test(run)
    for keys, leaf in jax.tree_util.tree_leaves_with_path(params):
        path = format_path(keys)
        share: Any = not is_frozen(path)
        if share and run.train.trainable_layers is not None:
            share = select_trained(path, *count_entries(run, run.train.trainable_layers))
        total += math.prod(leaf.shape) * np.mean(share)
    return round(total)


def freeze_params(
    optimizer: optax.GradientTransformation, is_frozen: Callable[[str], bool]
) -> optax.GradientTransformation:
    """Return the optimizer without the parameters that are frozen.

    They have no update, no weight decay and no optimizer state.

    Args:
      is_frozen: of a parameter's path.
    """

    def label_params(params: optax.Params) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda keys, _: "frozen" if is_frozen(format_path(keys)) else "trained", params
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
    if is_outside_layers(path):
        return True
    if match := re.search(r"/layer_(\d+)/", path):
        return int(match[1]) >= depth - num_trained
    return np.arange(depth) >= depth - num_trained if "/layers/" in path else False
