"""Conversion to and from Hugging Face transformers, by the maps of `pretrain.families`."""

from models.config.base import Config
from models.config.heads import HeadedConfig
from pretrain.families import Family, family_of


def family_in(config: Config) -> Family:
    """Return the family of a model, or of the encoder of a fine-tuned model.

    Raises ValueError if the configuration belongs to no family.
    """
    return family_of(config.encoder if isinstance(config, HeadedConfig) else config)


def name_of(config: Config) -> str:
    """Return the model_type that a model has in config.json. Raises as `family_in`."""
    return family_in(config).hugging_face.model_type
