"""What the papers say, in JAX and Flax Linen: these models know nothing of data, optimisers or meshes."""

import importlib

from models.config import BertConfig, T5Config

# Where the module of each configuration is. Named, not imported: a configuration is read without JAX.
MODELS = {
    BertConfig: ("models.bert", "BertForPretraining"),
    T5Config: ("models.t5", "T5"),
}


def build(config, constrain=None):
    """The Linen module of a model's configuration.

    constrain: a function that is applied to the activations [B, L, D] at the top of each layer; none unless given.
    Raises ValueError when no model has a configuration of that type.
    """
    if type(config) not in MODELS:
        known = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"no model is configured by a {type(config).__name__}; models/__init__.py knows {known}")
    module, name = MODELS[type(config)]
    kind = getattr(importlib.import_module(module), name)
    return kind(config, constrain) if constrain else kind(config)
