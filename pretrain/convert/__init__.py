"""Ours and theirs: one table of names and layouts a family, read forwards to export and backwards to import.

Each family's module has `to_hf(config, params)`, `from_hf(config, tensors, init_params)`, `our_config(hf_config)` and
`hf_config(config, vocabulary)`. A model of ours that is several of theirs has the first in the folder itself, and PARTS names the
folders of the others: their configurations stand under these keys, their tensors under `NAME/`. The tables import no JAX, torch or
transformers.
"""

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
    HeadedConfig,
)
from pretrain.convert import (
    albert,
    bart,
    bert,
    distilbert,
    electra,
    gpt,
    gpt2,
    roberta,
    t5,
    transformer,
)

# By model_type in config.json, and by the class of our configuration.
FAMILIES = {
    "bert": bert,
    "t5": t5,
    "roberta": roberta,
    "albert": albert,
    "openai-gpt": gpt,
    "gpt2": gpt2,
    "electra": electra,
    "marian": transformer,
    "bart": bart,
    "distilbert": distilbert,
}
CONFIGS = {
    BertConfig: bert,
    T5Config: t5,
    RobertaConfig: roberta,
    AlbertConfig: albert,
    ElectraConfig: electra,
    GptConfig: gpt,
    Gpt2Config: gpt2,
    Gpt3Config: gpt2,
    TransformerConfig: transformer,
    BartConfig: bart,
    DistilBertConfig: distilbert,
}


def family_of(config):
    """The table of a model's configuration. Raises ValueError where there is none."""
    if type(config) not in CONFIGS:
        known = ", ".join(kind.__name__ for kind in CONFIGS)
        raise ValueError(
            f"no table of names for a {type(config).__name__}; pretrain/convert/__init__.py knows {known}"
        )
    return CONFIGS[type(config)]


def name_of(config):
    """The name of the model's family, which is model_type in config.json. Raises ValueError where there is none."""
    module = family_of(config.encoder if isinstance(config, HeadedConfig) else config)
    return next(name for name, known in FAMILIES.items() if known is module)


def parts(module):
    """The names of the folders that a family's folder has in it: none for most."""
    return getattr(module, "PARTS", ())
