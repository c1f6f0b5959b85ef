"""The configurations of the models: one frozen dataclass a family, without JAX."""

import functools
import importlib
import inspect
import pkgutil

from models.config.base import Config, EncoderConfig, ImageConfig, ModelConfig

__all__ = ["Config", "EncoderConfig", "ImageConfig", "ModelConfig", "find_configs"]


def load_config(file: str) -> type[Config] | None:
    """Return the configuration class of a family, whose file is in this folder; None without."""
    if file in ("base", "heads"):
        return None
    module = importlib.import_module(f"{__name__}.{file}")
    for kind in vars(module).values():
        if (
            inspect.isclass(kind)
            and issubclass(kind, Config)
            and kind.__module__ == module.__name__
            and "module" in vars(kind)  # a base of two families names no module
        ):
            return kind
    return None


@functools.cache
def find_configs() -> tuple[type[Config], ...]:
    """Return the configuration class of each family with a file in this folder, by file name."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(kind for kind in map(load_config, files) if kind is not None)
