"""Conversion to and from Hugging Face transformers, by the maps of `pretrain.families`."""

from models.config.base import Config
from models.config.heads import HeadedConfig
from pretrain.families import Family, find_family


def find_model_family(config: Config) -> Family:
    """Return the family of a model, or of the encoder of a fine-tuned model.

    Raises ValueError if the configuration belongs to no family.
    """
    return find_family(config.encoder if isinstance(config, HeadedConfig) else config)


def find_model_type(config: Config) -> str:
    """Return the model_type that a model has in config.json, by which its tokenizer is found.

    It is the name of the family where transformers has no such model. Raises as
    `find_model_family`.
    """
    return find_model_family(config).tokenizer_name
