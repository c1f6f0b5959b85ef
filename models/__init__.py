"""The models of the papers, in JAX and Flax Linen, without data, optimizers or meshes."""

import importlib
from typing import Any

from models.config import Config


def build(config: Config, **hooks: Any) -> Any:
    """Return the Linen module that a model's configuration names (`Config.module`).

    Args:
      config: a configuration of models/config.
      **hooks: `ops`, a `models.layers.ops.Ops`: the operations that a trainer replaces.

    Raises:
      ValueError: `config` is not a model's configuration.
    """
    if not isinstance(config, Config):
        raise ValueError(
            f"no model is configured by a {type(config).__name__}; "
            "the configurations are in models/config/"
        )
    module, name = config.module.split(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)(config, **hooks)
