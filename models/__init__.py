"""What the papers say, in JAX and Flax Linen: these models know nothing of data, optimisers or meshes."""

import importlib

from models.config import Config


def build(config, **parts):
    """Return the Linen module of a model's configuration, which names it (`Config.module`).

    parts: `ops`, the operations that a trainer puts in the place of the plain ones, a `models.layers.ops.Ops`.
    Raises ValueError for what configures no model.
    """
    if not isinstance(config, Config):
        raise ValueError(
            f"no model is configured by a {type(config).__name__}; the configurations are in models/config/"
        )
    module, name = config.module.split(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)(config, **parts)
