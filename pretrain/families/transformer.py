"""The Transformer: models/transformer.py, and `MarianMTModel` of Hugging Face transformers.

Marian (Junczys-Dowmunt et al. 2018) is the same model if it has the paper's activation, no bias on
its output and one vocabulary. The released translation models have another activation and a bias,
and cannot be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.seq2seq import Seq2Seq
from models.config.transformer import TransformerConfig
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.rules import KERNEL, KERNEL_OUT, SAME, Rules, map_layer, map_linear, map_norm

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

BIAS = {"final_logits_bias": lambda config: (1, config.vocab)}  # always there, and 0 here
BIAS_REASON = "this model adds a bias to the logits, which the paper's has not"

BARE = ("shared.", "encoder.", "decoder.")  # names in the file of a model without its output

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
FIELDS = (  # our field, their key, the meaning of an absent key
    ("vocab", "vocab_size", 58101),
    ("width", "d_model", 1024),
    ("depth", "encoder_layers", 12),
    ("decoder_depth", "decoder_layers", 12),
    ("num_heads", "encoder_attention_heads", 16),
    ("mlp", "encoder_ffn_dim", 4096),
    ("dropout", "dropout", 0.1),
    ("attention_dropout", "attention_dropout", 0.0),
)
TWINS = {
    "decoder_attention_heads": "encoder_attention_heads",
    "decoder_ffn_dim": "encoder_ffn_dim",
    "decoder_vocab_size": "vocab_size",
}
ALIASES = {
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
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
READ_ONLY = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
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
        prefix="model.",
        bare=BARE,
        body=("model.", "lm_head."),
        copies=COPIES,
        zeros=BIAS,
        zeros_reason=BIAS_REASON,
        buffers=(  # sinusoids, which are computed
            "model.encoder.embed_positions.weight",
            "model.decoder.embed_positions.weight",
        ),
        fields=FIELDS,
        aliases=ALIASES,
        fixed=FIXED,
        read_only=READ_ONLY,
        absent_values={  # the defaults of their code
            "activation_function": "gelu",
            "scale_embedding": False,
            "decoder_start_token_id": 58100,
        },
        equal_keys=TWINS,
        constant_fields={"epsilon": 1e-5},
        settings=describe_settings,
    ),
)
