"""The configurations of the models: one frozen dataclass a family, without JAX."""

import functools
import importlib
import inspect
import pkgutil

from models.config.base import Config, EncoderConfig, ImageConfig, ModelConfig, TakesHead

__all__ = ["Config", "EncoderConfig", "ImageConfig", "ModelConfig", "find_configs"]


@functools.cache
def find_configs() -> tuple[type[Config], ...]:
    """Return the configuration class of each family with a file in this folder, by file name."""
    configs = []
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if name not in ("base", "heads"):
            module = importlib.import_module(f"{__name__}.{name}")
            configs += [
                kind
                for kind in vars(module).values()
                if inspect.isclass(kind)
                and issubclass(kind, ModelConfig | TakesHead | ImageConfig)
                and kind.__module__ == module.__name__
            ]
    return tuple(configs)
