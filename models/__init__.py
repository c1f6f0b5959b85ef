"""What the papers say, in JAX and Flax Linen: these models know nothing of data, optimisers or meshes."""

import importlib

from models.config import (
    AlbertConfig,
    BartConfig,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    Gpt2Config,
    Gpt3Config,
    GptConfig,
    RobertaConfig,
    T5Config,
    TransformerConfig,
)
from models.config.heads import (
    ChoiceConfig,
    ClassifierConfig,
    SpanReaderConfig,
    TaggerConfig,
)

# Where the module of each configuration is. Named, not imported: a configuration is read without JAX.
MODELS = {
    BertConfig: ("models.bert", "BertForPretraining"),
    T5Config: ("models.t5", "T5"),
    TransformerConfig: ("models.transformer", "Transformer"),
    RobertaConfig: ("models.roberta", "RobertaForMaskedLM"),
    AlbertConfig: ("models.albert", "AlbertForPretraining"),
    ElectraConfig: ("models.electra", "Electra"),
    BartConfig: ("models.bart", "Bart"),
    DistilBertConfig: ("models.distilbert", "DistilBert"),
    GptConfig: ("models.gpt", "Gpt"),
    Gpt2Config: ("models.gpt2", "Gpt2"),
    Gpt3Config: ("models.gpt3", "Gpt3"),
    ClassifierConfig: ("models.heads.classifier", "Classifier"),
    TaggerConfig: ("models.heads.tagger", "Tagger"),
    ChoiceConfig: ("models.heads.multiple_choice", "Chooser"),
    SpanReaderConfig: ("models.heads.question_answering", "SpanReader"),
}


def build(config, **parts):
    """The Linen module of a model's configuration.

    parts: what a trainer may put in the place of a model's own: `constrain`, applied to the activations [B, L, D] at the
    top of each layer, and `attend`, a kernel of `models.layers.attention.attend`'s signature.
    Raises ValueError when no model has a configuration of that type.
    """
    if type(config) not in MODELS:
        known = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(
            f"no model is configured by a {type(config).__name__}; models/__init__.py knows {known}"
        )
    module, name = MODELS[type(config)]
    return getattr(importlib.import_module(module), name)(config, **parts)
