"""EuroBERT: models/eurobert.py, and `EuroBertForMaskedLM` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.masked_lm import MaskedLm
from models.config.eurobert import EuroBertConfig
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import Constant, Fixed, Key, read_rotary_base
from pretrain.families.rules import (
    KERNEL,
    KERNEL_OUT,
    SAME,
    Rules,
    map_linear,
    map_scores,
)
from pretrain.families.tensor_steps import add_prefix

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary


def map_layers(theirs: str) -> Rules:
    """Return the rules of Llama's layers without their norms; theirs: a layer's name."""
    ours = "encoder/layers"
    return (
        (f"{ours}/attention/query/kernel", f"{theirs}.self_attn.q_proj.weight", KERNEL),
        (f"{ours}/attention/key/kernel", f"{theirs}.self_attn.k_proj.weight", KERNEL),
        (f"{ours}/attention/value/kernel", f"{theirs}.self_attn.v_proj.weight", KERNEL),
        (f"{ours}/attention/out/kernel", f"{theirs}.self_attn.o_proj.weight", KERNEL_OUT),
        *map_scores(f"{ours}/mlp/gate", f"{theirs}.mlp.gate_proj"),
        *map_scores(f"{ours}/mlp/up", f"{theirs}.mlp.up_proj"),
        *map_scores(f"{ours}/mlp/down", f"{theirs}.mlp.down_proj"),
    )


OURS, THEIRS = "encoder/layers", "model.layers.{i}"
RULES = (
    ("token_embedding/embedding", "model.embed_tokens.weight", SAME),
    *map_layers(THEIRS),
    (f"{OURS}/attention_norm/scale", f"{THEIRS}.input_layernorm.weight", SAME),
    (f"{OURS}/mlp_norm/scale", f"{THEIRS}.post_attention_layernorm.weight", SAME),
    ("norm/scale", "model.norm.weight", SAME),
    *map_scores("lm_head", "lm_head"),
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 128256),
    Key("length", "max_position_embeddings", 8192),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 12),
    Key("num_heads", "num_attention_heads", 12),
    Key(
        "num_key_heads",
        "num_key_value_heads",
        lambda theirs: theirs.get("num_attention_heads", 12),
    ),
    Key("mlp", "intermediate_size", 3072),
    Key("rotary_base", "rope_theta", 10_000.0),
    Key("pooling", "classifier_pooling", "late", ("clf_pooling",)),
    Key("epsilon", "rms_norm_eps", 1e-5),
    Constant("dropout", 0.0),
    Fixed("attention_dropout", 0.0),
    Fixed("hidden_act", "silu", also=("swish",)),
    Fixed("attention_bias", False),
    Fixed("mlp_bias", False),
    Fixed("tie_word_embeddings", False),
)


def describe_settings(config: EuroBertConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
        "mask_token_id": vocabulary.mask,
    }


def fill_older_keys(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return their configuration with the base of the rotary positions under its older key.

    Raises:
      ValueError: rotary positions with scaling, or heads whose width is not width / heads.
    """
    theirs = dict(theirs)
    for key in ("rope_parameters", "rope_scaling"):
        base = read_rotary_base(key, theirs.get(key))
        if base is not None:
            theirs["rope_theta"] = base
    width, num_heads = theirs.get("hidden_size", 768), theirs.get("num_attention_heads", 12)
    head_width = theirs.get("head_dim")
    if head_width is not None and head_width * num_heads != width:
        raise ValueError(
            f"head_dim is {head_width!r}, with {num_heads} heads in a width of {width}; "
            "only width / heads is supported"
        )
    return theirs


FAMILY = Family(
    name="eurobert",
    config=EuroBertConfig,
    extends=("bert", "neobert"),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="EuroBERT encoder",
    task="fill-mask",
    token_roles=("pad", "cls", "sep", "mask"),  # bytes are never unknown
    template="cls_sep",
    hugging_face=HuggingFaceMap(
        model_type="eurobert",
        architecture="EuroBertForMaskedLM",
        rules=RULES,
        stacks={"encoder": "depth"},
        body=("model.",),
        heads=("lm_head.",),
        before_import=(add_prefix("model.", ("embed_tokens.", "layers.", "norm.")),),
        keys=KEYS,
        settings=describe_settings,
        prepare=fill_older_keys,
        head_map=HeadMap(
            prefix="EuroBert",
            classes={"ForQuestionAnswering": None, "ForMultipleChoice": None},
            rules={
                "ForSequenceClassification": (
                    *map_linear("classifier/transform", "dense"),
                    *map_linear("classifier/scores/out", "classifier"),
                )
            },
            dropout=None,
        ),
    ),
)
