"""The checks that a model and an objective of images fit each other. No JAX."""

from typing import Any

from models.config.base import ImageConfig
from pretrain.settings.overrides import ConfigError


def check_images(model: Any, objective: Any) -> None:
    """Raise ConfigError, which names the keys, unless images and patches fit."""
    check_image_size(model, objective)
    check_patches(model, objective)


def check_image_size(model: Any, objective: Any) -> None:
    """Raise ConfigError unless the rows of images have the size and the channels of the model."""
    if not isinstance(model, ImageConfig):
        return
    if model.image_size != objective.size:
        raise ConfigError(
            f"model.image_size={model.image_size}, but data.objective.size={objective.size}: set "
            "both to one number"
        )
    if model.channels != objective.channels:
        raise ConfigError(
            f"model.pixels has {model.channels} channels, but data.objective.channels="
            f"{objective.channels}: set model.pixels.mean and model.pixels.std to a value for each"
        )


def check_patches(model: Any, objective: Any) -> None:
    """Raise ConfigError unless model and objective both predict patches, of one size, or neither.

    An objective that does has a `patch_size`.
    """
    predicts, patch_size = model.predicts_patches, objective.patch_size
    name = type(objective).__name__
    if predicts and patch_size is None:
        raise ConfigError(
            f"model.pooling=patches: the head predicts masked patches, which {name} has not; set "
            "model.pooling to cls or mean"
        )
    if patch_size is not None and not predicts:
        raise ConfigError(
            f"data.objective: a {name} trains a head of masked patches; set model.pooling=patches"
        )
    if predicts and patch_size != model.patch_size:
        raise ConfigError(
            f"model.patch_size={model.patch_size}, but data.objective.patch_size={patch_size}: set "
            "both to one number"
        )
