"""Learning rates and weight decay by group of parameters, and by layer, of any optimizer."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pretrain.mesh.sharding import KeyPath, format_path
from pretrain.settings.group_text import parse_group
from pretrain.settings.overrides import ConfigError
from pretrain.training.optimizers.decay_ramp import scale_weight_decay
from pretrain.training.optimizers.transforms import clip_by_global_norm
from pretrain.training.schedules import Schedule

Build = Callable[[Any, Schedule], optax.GradientTransformation]


def build_groups(
    build: Build, config: Any, learning_rate: Schedule
) -> optax.GradientTransformation:
    """Return an optimizer whose updates and weight decay follow `config.groups`.

    Gradients are clipped by the norm of all groups together.

    Args:
      build, config: of the optimizer.

    Raises:
      ConfigError: by `init`, for a group that names no parameter.
    """
    groups = [parse_group(text) for text in config.groups]

    def find_group(path: str) -> tuple[float, float]:
        """Return (factor of the rate, factor of the weight decay) of a parameter."""
        return next(
            ((rate, decay) for pattern, rate, decay in groups if is_match(path, pattern)),
            (1.0, 1.0),
        )

    def scale_leaf(keys: KeyPath, update: jax.Array) -> jax.Array:
        return update * find_group(format_path(keys))[0]

    def label_params(params: optax.Params) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda keys, _: f"decay {find_group(format_path(keys))[1]:g}", params
        )

    def init_checked(params: optax.Params) -> Any:
        check_patterns(params, [pattern for pattern, _, _ in groups])
        return optimizer.init(params)

    decays = {1.0, *(decay for _, _, decay in groups)}
    optimizer = build(config, learning_rate)
    if len(decays) > 1:
        parts: dict[Any, optax.GradientTransformation] = {
            f"decay {decay:g}": build(
                dataclasses.replace(scale_weight_decay(config, decay), max_grad_norm=0.0),
                learning_rate,
            )
            for decay in decays
        }
        optimizer = optax.chain(
            clip_by_global_norm(config.max_grad_norm), optax.partition(parts, label_params)
        )
    optimizer = optax.chain(
        optimizer,
        optax.stateless(lambda updates, _: jax.tree_util.tree_map_with_path(scale_leaf, updates)),
    )
    return optax.GradientTransformationExtraArgs(init_checked, optimizer.update)


def is_match(path: str, pattern: str) -> bool:
    """Return whether a part of a path matches a pattern, in which `*` is any text."""
    return fnmatch.fnmatchcase(path, f"*{pattern}*")


def check_patterns(params: optax.Params, patterns: list[str]) -> None:
    """Raise ConfigError, with the nearest path, for a pattern that matches no parameter."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    paths = [format_path(keys) for keys, _ in leaves]
    for pattern in patterns:
        if not any(is_match(path, pattern) for path in paths):
            names = {part: path for path in paths for part in (path, *path.split("/"))}
            [nearest] = difflib.get_close_matches(pattern, names, n=1, cutoff=0.0)
            raise ConfigError(
                f"optimizer.groups: {pattern!r} matches no parameter; the nearest is "
                f"{names[nearest]}"
            )


def decay_rates_by_layer(
    optimizer: optax.GradientTransformation, factor: float, depth: int, layers_per_entry: int
) -> optax.GradientTransformation:
    """Return the optimizer of a fine-tuned encoder with smaller updates in lower layers.

    The top entry of the stack has `factor`, each entry below it `factor ** layers_per_entry` times
    the one above, and embeddings one layer less than the lowest (Bao et al. 2021, section 3.1). The
    pooler and the head keep their rate.

    Args:
      depth: entries of the stack.
    """

    def scale_leaf(keys: KeyPath, update: jax.Array) -> jax.Array:
        factors = find_layer_factors(format_path(keys), factor, depth, layers_per_entry)
        return update * jnp.asarray(factors, update.dtype).reshape(-1, *(1,) * (update.ndim - 1))

    scale = optax.stateless(
        lambda updates, _: jax.tree_util.tree_map_with_path(scale_leaf, updates)
    )
    return optax.chain(optimizer, scale)


def find_layer_factors(path: str, factor: float, depth: int, layers_per_entry: int) -> np.ndarray:
    """Return the factors of a parameter's rate, [depth] for a stack of layers, otherwise [1]."""
    powers = 1 + layers_per_entry * (depth - 1 - np.arange(depth))
    if not path.startswith("encoder/") or "/pooler/" in path:
        return np.ones(1)
    if match := re.search(r"/layer_(\d+)/", path):
        return factor ** powers[[int(match[1])]]
    if "/layers/" in path:
        return factor**powers
    is_low = "embedding" in path or path.endswith("/table")
    return np.array([factor ** (1 + layers_per_entry * depth) if is_low else 1.0])
