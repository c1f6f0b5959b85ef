"""BART: models/bart.py, and `BartForConditionalGeneration` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.denoising import Denoising
from data.objectives.text2text import Text2Text
from models.config.bart import BartConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Constant, Fixed, Key, Same
from pretrain.families.rules import SAME, Rules, map_norm
from pretrain.families.transformer import AFTER_EXPORT, BEFORE_IMPORT, map_stack

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
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 50265),
    Key("length", "max_position_embeddings", 1024),
    Key("start", "decoder_start_token_id", 2),
    Key("width", "d_model", 1024, ("hidden_size",)),
    Key("depth", "encoder_layers", 12, ("num_hidden_layers",)),
    Key("decoder_depth", "decoder_layers", 12),
    Key("num_heads", "encoder_attention_heads", 16, ("num_attention_heads",)),
    Key("mlp", "encoder_ffn_dim", 4096),
    Key("dropout", "dropout", 0.1),
    Key("attention_dropout", "attention_dropout", 0.0),
    Fixed("is_encoder_decoder", True),
    Fixed("activation_function", "gelu", also=EXACT_GELU),
    Fixed("scale_embedding", False),
    Fixed("tie_word_embeddings", True),
    # Keys of older files, which their code ignores.
    Fixed("normalize_before", False, written=False),
    Fixed("normalize_embedding", True, written=False),
    Fixed("add_final_layer_norm", False, written=False),
    Fixed("static_position_embeddings", False, written=False),
    Same("decoder_attention_heads", "encoder_attention_heads"),
    Same("decoder_ffn_dim", "encoder_ffn_dim"),
    # Their code has no settings for these.
    Constant("first_position", 2),
    Constant("epsilon", 1e-5),
)


def describe_settings(config: BartConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json. Raises as `check_start_token`."""
    check_start_token(config, vocabulary)
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
        body=("model.", "lm_head."),
        before_import=BEFORE_IMPORT,
        after_export=AFTER_EXPORT,
        keys=KEYS,
        settings=describe_settings,
    ),
)
