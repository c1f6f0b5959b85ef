"""Our models and those of Hugging Face transformers: applies the maps of `pretrain.families` in both directions."""

from models.config.heads import HeadedConfig
from pretrain.families import Family, family_of


def family_in(config) -> Family:
    """Return the record of a model's family, which of a fine-tuned model is its encoder's. Raises ValueError where there is none."""
    return family_of(config.encoder if isinstance(config, HeadedConfig) else config)


def name_of(config) -> str:
    """Return the model_type in config.json of a model. Raises ValueError where it has no family."""
    return family_in(config).hugging_face.model_type
