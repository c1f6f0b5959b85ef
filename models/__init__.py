"""What the papers say, in JAX and Flax Linen: these models know nothing of data, optimisers or meshes."""

from models.bert import BertConfig, BertForPretraining
from models.layers.stack import unchanged
from models.t5 import T5, T5Config

MODELS = {BertConfig: BertForPretraining, T5Config: T5}


def build(config, constrain=unchanged):
    """The Linen module of a model's configuration; `constrain` is applied to the activations at the top of each layer.

    Raises ValueError when no model has a configuration of that type.
    """
    if type(config) not in MODELS:
        known = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"no model is configured by a {type(config).__name__}; models/__init__.py knows {known}")
    return MODELS[type(config)](config, constrain)
