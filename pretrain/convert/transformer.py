"""The Transformer under both its names: models/transformer.py and `MarianMTModel` of Hugging Face transformers.

Marian's (Junczys-Dowmunt et al. 2018) is the same model with the paper's activation, without a bias on its output and with one
vocabulary; the released translators have another activation and a bias, and are refused.
"""

import numpy as np

from models.config import TransformerConfig
from pretrain.convert import config_fields, name_map
from pretrain.families.rules import KERNEL_OUT, SAME, linear, norm

BIAS = "final_logits_bias"  # on the scores of words: always there, and 0 here
EPSILON = 1e-5  # of their norms; no setting of theirs


def attention(ours, theirs):
    parts = (f"{part}_proj" for part in ("q", "k", "v"))
    read = tuple(
        rule
        for name, part in zip(("query", "key", "value"), parts)
        for rule in linear(f"{ours}/{name}", f"{theirs}.{part}")
    )
    return read + linear(f"{ours}/out", f"{theirs}.out_proj", KERNEL_OUT)


def stack(name, *, cross):
    """The rules of the encoder or of the decoder, whose layers have one more part."""
    ours, theirs = f"{name}/layers", f"model.{name}.layers.{{i}}"
    rules = (
        *attention(f"{ours}/attention", f"{theirs}.self_attn"),
        *norm(f"{ours}/attention_norm", f"{theirs}.self_attn_layer_norm"),
        *linear(f"{ours}/mlp/up", f"{theirs}.fc1"),
        *linear(f"{ours}/mlp/down", f"{theirs}.fc2"),
        *norm(f"{ours}/mlp_norm", f"{theirs}.final_layer_norm"),
    )
    crossing = (
        *attention(f"{ours}/cross", f"{theirs}.encoder_attn"),
        *norm(f"{ours}/cross_norm", f"{theirs}.encoder_attn_layer_norm"),
    )
    return rules + crossing if cross else rules


RULES = (
    ("words/embedding", "model.shared.weight", SAME),
    *stack("encoder", cross=False),
    *stack("decoder", cross=True),
)
COPIES = dict.fromkeys(
    ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    "model.shared.weight",
)
KNOWN = (
    "model.encoder.embed_positions.weight",
    "model.decoder.embed_positions.weight",
)  # sinusoids, which need no storing

FIELDS = (  # our field, their key, what an absent key means
    ("vocab", "vocab_size", 58101),
    ("width", "d_model", 1024),
    ("depth", "encoder_layers", 12),
    ("decoder_depth", "decoder_layers", 12),
    ("heads", "encoder_attention_heads", 16),
    ("mlp", "encoder_ffn_dim", 4096),
    ("dropout", "dropout", 0.1),
    ("attention_dropout", "attention_dropout", 0.0),
)
TWINS = {
    "decoder_attention_heads": "encoder_attention_heads",
    "decoder_ffn_dim": "encoder_ffn_dim",
    "decoder_vocab_size": "vocab_size",
}
FIXED = {
    "model_type": "marian",
    "is_encoder_decoder": True,
    "activation_function": "relu",
    "activation_dropout": 0.0,
    "scale_embedding": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "decoder_start_token_id": 0,  # what models/transformer.py shifts in
}
ELSEWHERE = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
POSITIONS = 1024  # that their code makes sinusoids for; ours has no limit


def depths(config):
    return {"encoder": config.depth, "decoder": config.decoder_depth}


def to_hf(config, params):
    """{name: float32 array}: what `model.safetensors` holds."""
    return name_map.export(params, RULES, depths(config)) | {
        BIAS: np.zeros((1, config.vocab), np.float32)
    }


def from_hf(config, tensors, init_params):
    """(parameters, ImportReport) from {name: array} of a Marian model without a bias on its output.

    Raises ValueError that names what is missing, has no place, or has the wrong shape or type.
    """
    tensors = name_map.merge_copies(tensors, COPIES)
    return name_map.fill(
        unbiased(tensors),
        RULES,
        depths(config),
        init_params,
        heads=(),
        body=("model.", "lm_head."),
        known=KNOWN,
    )


def unbiased(tensors):
    """The tensors without the bias of the output. Raises ValueError where it is not 0."""
    if BIAS not in set(tensors):
        return tensors
    if np.any(tensors[BIAS]):
        raise ValueError(
            f"{BIAS} is not 0: this model adds a bias to the scores of words, which the paper's has not"
        )
    return name_map.Renamed(tensors, {name: name for name in tensors if name != BIAS})


def hf_config(config, vocabulary):
    """The dict of config.json. Raises ValueError where transformers has no such model, or the vocabulary no padding or end."""
    if config.epsilon != EPSILON:
        raise ValueError(
            f"model.epsilon={config.epsilon:g} cannot be exported: MarianMTModel's norms have {EPSILON:g}"
        )
    return {
        "architectures": ["MarianMTModel"],
        **config_fields.write(config, FIELDS, FIXED),
        **{
            twin: getattr(config, ours)
            for twin, key in TWINS.items()
            for ours, theirs, _ in FIELDS
            if theirs == key
        },
        "max_position_embeddings": POSITIONS,
        "pad_token_id": vocabulary.pad,
        "eos_token_id": vocabulary.eos,
        "forced_eos_token_id": vocabulary.eos,
        "dtype": "float32",
    }


def our_config(hf_config):
    """The TransformerConfig of a config.json. Raises ValueError that names a setting that the Transformer does not have here."""
    hf_config = config_fields.present(hf_config)
    for twin, key in TWINS.items():
        if twin in hf_config and hf_config[twin] != hf_config.get(key):
            raise ValueError(
                f"{twin} is {hf_config[twin]!r} and {key} {hf_config.get(key)!r}; TransformerConfig has one for both"
            )
    fixed = FIXED | ELSEWHERE
    absent = {
        "activation_function": "gelu",
        "scale_embedding": False,
        "decoder_start_token_id": 58100,
    }  # as their code has it
    return TransformerConfig(
        **config_fields.read(absent | hf_config, TransformerConfig, FIELDS, fixed), epsilon=EPSILON
    )
