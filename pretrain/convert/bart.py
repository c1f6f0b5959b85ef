"""BART under both its names: models/bart.py and `BartForConditionalGeneration` of Hugging Face transformers."""

import numpy as np

from models.config import BartConfig
from pretrain.convert import config_fields, name_map
from pretrain.convert.transformer import BIAS, depths, stack, unbiased
from pretrain.families.rules import SAME, norm


def places(side):
    """The rules of what is added to a side's words."""
    return (
        (f"{side}_places/positions/embedding", f"model.{side}.embed_positions.weight", SAME),
        *norm(f"{side}_places/norm", f"model.{side}.layernorm_embedding"),
    )


RULES = (
    ("words/embedding", "model.shared.weight", SAME),
    *places("encoder"),
    *stack("encoder", cross=False),
    *places("decoder"),
    *stack("decoder", cross=True),
)
COPIES = dict.fromkeys(
    ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    "model.shared.weight",
)

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 50265),
    ("length", "max_position_embeddings", 1024),
    ("start", "decoder_start_token_id", 2),
    ("width", "d_model", 1024),
    ("depth", "encoder_layers", 12),
    ("decoder_depth", "decoder_layers", 12),
    ("heads", "encoder_attention_heads", 16),
    ("mlp", "encoder_ffn_dim", 4096),
    ("dropout", "dropout", 0.1),
    ("attention_dropout", "attention_dropout", 0.0),
)
TWINS = {"decoder_attention_heads": "encoder_attention_heads", "decoder_ffn_dim": "encoder_ffn_dim"}
FIXED = {
    "model_type": "bart",
    "is_encoder_decoder": True,
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
}
# What their code has no setting for, or what older files name and it no longer reads.
FIRST, EPSILON = 2, 1e-5
ELSEWHERE = {
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "static_position_embeddings": False,
}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, RULES, depths(config)) | {
        BIAS: np.zeros((1, config.vocab), np.float32)
    }


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a BART without a bias on its output, as the released ones are.

    Raises ValueError that names what is missing, has no place, or has the wrong shape or type.
    """
    return name_map.fill(
        unbiased(name_map.merge_copies(tensors, COPIES)),
        RULES,
        depths(config),
        init_params,
        heads=(),
        body=("model.", "lm_head."),
    )


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError where transformers has no such model, or the vocabulary other ids."""
    for name, only in (("first_position", FIRST), ("epsilon", EPSILON)):
        if getattr(config, name) != only:
            raise ValueError(
                f"model.{name}={getattr(config, name):g} cannot be exported: BartForConditionalGeneration has {only:g}"
            )
    if vocabulary.eos != config.start:
        raise ValueError(
            f"</s> is {vocabulary.eos} in this vocabulary, and the decoder begins with {config.start} (model.start)"
        )
    return {
        "architectures": ["BartForConditionalGeneration"],
        **config_fields.write(config, FIELDS, FIXED),
        **{
            twin: getattr(config, ours)
            for twin, key in TWINS.items()
            for ours, theirs, _ in FIELDS
            if theirs == key
        },
        "activation_dropout": 0.0,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "forced_eos_token_id": vocabulary.eos,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The BartConfig of a config.json. Raises ValueError that names a setting that BART does not have here.

    Dropout on the widened activations, which the released files name beside the others, is not carried over.
    """
    hf_config = config_fields.present(hf_config)
    for twin, key in TWINS.items():
        if twin in hf_config and hf_config[twin] != hf_config.get(key):
            raise ValueError(
                f"{twin} is {hf_config[twin]!r} and {key} {hf_config.get(key)!r}; BartConfig has one for both"
            )
    return BartConfig(
        **config_fields.read(hf_config, BartConfig, FIELDS, FIXED | ELSEWHERE),
        first_position=FIRST,
        epsilon=EPSILON,
    )
