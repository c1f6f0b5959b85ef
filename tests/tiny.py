"""Tiny models of any family, by the fields of its configuration and the arguments of its module."""

import dataclasses
import functools
import inspect

import jax
import jax.numpy as jnp

from models import build
from models.config.base import ImageConfig


def fit_sizes(kind, sizes: dict, **settings):
    """Return a configuration of a family with those of `sizes` that it has, and other settings."""
    own = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: size for name, size in sizes.items() if name in own} | settings)


@functools.cache
def compute_shapes(config):
    """Return (module, shapes of its parameters); nothing is compiled."""
    model, ids = build(config), jnp.ones((1, 4), jnp.int32)
    arguments = {"token_ids": ids, "attention_mask": ids > 0, "labels": ids}
    if config.characters:
        arguments["token_ids"] = jnp.ones((1, 4, config.characters), jnp.int32)
    arguments |= {f"encoder_{key}": value for key, value in arguments.items()}
    if isinstance(config, ImageConfig):
        shape = 1, config.image_size, config.image_size, config.channels
        arguments["pixels"] = jnp.zeros(shape, jnp.uint8)
    named = inspect.signature(type(model).__call__).parameters
    read = {
        key: arguments[key]
        for key, one in named.items()
        if one.default is one.empty and key in arguments
    }
    return model, jax.eval_shape(lambda: model.init(jax.random.key(0), **read))["params"]
