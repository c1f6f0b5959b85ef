"""BART: models/bart.py, and `BartForConditionalGeneration` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.denoising import Denoising
from data.objectives.text2text import Text2Text
from models.config.bart import BartConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.rules import EXACT_GELU, SAME, Rules, map_norm
from pretrain.families.transformer import ALIASES, BARE, BIAS, BIAS_REASON, COPIES, map_stack

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary


def map_positions(side: str) -> Rules:
    """Return the rules of the position embeddings and the norm of `side`, encoder or decoder."""
    return (
        (
            f"{side}_places/position_embedding/embedding",
            f"model.{side}.embed_positions.weight",
            SAME,
        ),
        *map_norm(f"{side}_places/norm", f"model.{side}.layernorm_embedding"),
    )


RULES = (
    ("token_embedding/embedding", "model.shared.weight", SAME),
    *map_positions("encoder"),
    *map_stack("encoder", cross=False),
    *map_positions("decoder"),
    *map_stack("decoder", cross=True),
)
FIELDS = (  # our field, their key, the meaning of an absent key
    ("vocab", "vocab_size", 50265),
    ("length", "max_position_embeddings", 1024),
    ("start", "decoder_start_token_id", 2),
    ("width", "d_model", 1024),
    ("depth", "encoder_layers", 12),
    ("decoder_depth", "decoder_layers", 12),
    ("num_heads", "encoder_attention_heads", 16),
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
# ONLY: settings that their code does not have. READ_ONLY: keys of older files that it ignores.
ONLY = {"first_position": 2, "epsilon": 1e-5}
READ_ONLY = {
    "normalize_before": False,
    "normalize_embedding": True,
    "add_final_layer_norm": False,
    "static_position_embeddings": False,
}


def describe_settings(config: BartConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "activation_dropout": 0.0,  # imports ignore the released value
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "forced_eos_token_id": vocabulary.eos,
    }


def check_start_token(config: BartConfig, vocabulary: Vocabulary) -> None:
    """Raise ValueError unless the decoder begins with the vocabulary's </s>."""
    if vocabulary.eos != config.start:
        raise ValueError(
            f"</s> is {vocabulary.eos} in this vocabulary, and the decoder begins with "
            f"{config.start} (model.start); the two must be equal"
        )


FAMILY = Family(
    name="bart",
    config=BartConfig,
    extends=("transformer",),
    objectives=(Denoising, Text2Text),
    make_import_objective=lambda config: Denoising(length=min(512, config.length)),
    predictor="text_generation:RepairWriter",
    title="BART encoder-decoder",
    task="text2text-generation",
    token_roles=("pad", "bos", "eos", "mask"),
    template="cls_sep_sep",
    hugging_face=HuggingFaceMap(
        model_type="bart",
        architecture="BartForConditionalGeneration",
        rules=RULES,
        stacks={"encoder": "depth", "decoder": "decoder_depth"},
        prefix="model.",
        bare=BARE,
        body=("model.", "lm_head."),
        copies=COPIES,
        zeros=BIAS,
        zeros_reason=BIAS_REASON,
        fields=FIELDS,
        aliases=ALIASES,
        fixed=FIXED,
        same_values={"activation_function": EXACT_GELU},
        read_only=READ_ONLY,
        equal_keys=TWINS,
        constant_fields=ONLY,
        settings=describe_settings,
        check=check_start_token,
    ),
)
