"""The Transformer: models/transformer.py, and `MarianMTModel` of Hugging Face transformers.

Marian (Junczys-Dowmunt et al. 2018) is the same model if it has the paper's activation, no bias on
its output and one vocabulary. The released translation models have another activation and a bias,
and cannot be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from data.objectives.seq2seq import Seq2Seq
from models.config.transformer import TransformerConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Constant, Fixed, Key, Same
from pretrain.families.rules import KERNEL, KERNEL_OUT, SAME, Rules, map_layer, map_linear, map_norm
from pretrain.families.tensor_steps import add, add_prefix, drop_zeros, tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "out": "out_proj"}


def map_stack(name: str, *, cross: bool) -> Rules:
    """Return the rules of the encoder, or of the decoder with its cross-attention."""
    ours, theirs = f"{name}/layers", f"model.{name}.layers.{{i}}"
    layer_rules = map_layer(
        ours,
        theirs,
        **{part: f"self_attn.{projection}" for part, projection in PROJECTIONS.items()},
        attention_norm="self_attn_layer_norm",
        up="fc1",
        down="fc2",
        mlp_norm="final_layer_norm",
    )
    if not cross:
        return layer_rules
    cross_rules = (
        rule
        for part, projection in PROJECTIONS.items()
        for rule in map_linear(
            f"{ours}/cross/{part}",
            f"{theirs}.encoder_attn.{projection}",
            KERNEL_OUT if part == "out" else KERNEL,
        )
    )
    return (
        *layer_rules,
        *cross_rules,
        *map_norm(f"{ours}/cross_norm", f"{theirs}.encoder_attn_layer_norm"),
    )


RULES = (
    ("token_embedding/embedding", "model.shared.weight", SAME),
    *map_stack("encoder", cross=False),
    *map_stack("decoder", cross=True),
)
COPIES: dict[str, str] = dict.fromkeys(
    ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    "model.shared.weight",
)
BEFORE_IMPORT = (
    add_prefix("model.", ("shared.", "encoder.", "decoder.")),
    tie(COPIES),
    drop_zeros(
        "final_logits_bias", "this model adds a bias to the logits, which the paper's has not"
    ),
)
AFTER_EXPORT = (add("final_logits_bias", lambda config: np.zeros((1, config.vocab), np.float32)),)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 58101),
    Key("width", "d_model", 1024, ("hidden_size",)),
    Key("depth", "encoder_layers", 12, ("num_hidden_layers",)),
    Key("decoder_depth", "decoder_layers", 12),
    Key("num_heads", "encoder_attention_heads", 16, ("num_attention_heads",)),
    Key("mlp", "encoder_ffn_dim", 4096),
    Key("dropout", "dropout", 0.1),
    Key("attention_dropout", "attention_dropout", 0.0),
    Fixed("is_encoder_decoder", True),
    Fixed("activation_function", "relu", absent="gelu"),
    Fixed("activation_dropout", 0.0),
    Fixed("scale_embedding", True, absent=False),
    Fixed("share_encoder_decoder_embeddings", True),
    Fixed("tie_word_embeddings", True),
    Fixed("decoder_start_token_id", 0, absent=58100),  # what models/transformer.py shifts in
    # Keys of older files, which their code ignores.
    Fixed("normalize_before", False, written=False),
    Fixed("normalize_embedding", False, written=False),
    Fixed("add_final_layer_norm", False, written=False),
    Fixed("static_position_embeddings", True, written=False),
    Same("decoder_attention_heads", "encoder_attention_heads"),
    Same("decoder_ffn_dim", "encoder_ffn_dim"),
    Same("decoder_vocab_size", "vocab_size"),
    Constant("epsilon", 1e-5),
)
POSITIONS = 1024  # for which their code makes sinusoids; ours has no limit


def describe_settings(config: TransformerConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "max_position_embeddings": POSITIONS,
        "pad_token_id": vocabulary.pad,
        "eos_token_id": vocabulary.eos,
        "forced_eos_token_id": vocabulary.eos,
    }


FAMILY = Family(
    name="transformer",
    config=TransformerConfig,
    objectives=(Seq2Seq,),
    make_import_objective=lambda config: Seq2Seq(),
    predictor="text_generation:TranslationWriter",
    title="Transformer encoder-decoder",
    task="translation",
    token_roles=("pad", "eos"),
    template="eos",
    hugging_face=HuggingFaceMap(
        model_type="marian",
        architecture="MarianMTModel",
        rules=RULES,
        stacks={"encoder": "depth", "decoder": "decoder_depth"},
        body=("model.", "lm_head."),
        before_import=BEFORE_IMPORT,
        after_export=AFTER_EXPORT,
        buffers=(  # sinusoids, which are computed
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
        ),
        keys=KEYS,
        settings=describe_settings,
    ),
)
