"""ESM C: models/esmc.py, and `EsmcForMaskedLM` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.masked_lm import MaskedLm
from models.config.esmc import EsmcConfig
from pretrain.families import bert
from pretrain.families.eurobert import fill_older_keys, map_layers
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import Constant, Fixed, Key, Same
from pretrain.families.rules import SAME, map_linear, map_norm
from pretrain.families.tensor_steps import add_prefix

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

OURS, THEIRS = "encoder/layers", "esmc.layers.{i}"
RULES = (
    ("token_embedding/embedding", "esmc.embed_tokens.weight", SAME),
    *map_layers(THEIRS),
    (f"{OURS}/attention/query_norm/scale", f"{THEIRS}.self_attn.q_norm.weight", SAME),
    (f"{OURS}/attention/key_norm/scale", f"{THEIRS}.self_attn.k_norm.weight", SAME),
    *map_norm(f"{OURS}/attention_norm", f"{THEIRS}.input_layernorm"),
    *map_norm(f"{OURS}/mlp_norm", f"{THEIRS}.post_attention_layernorm"),
    ("norm/scale", "esmc.norm.weight", SAME),
    *map_linear("mlm_head/transform", "lm_head.dense"),
    *map_norm("mlm_head/norm", "lm_head.layer_norm"),
    *map_linear("lm_head", "lm_head.decoder"),
)
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 64),
    Key("length", "max_position_embeddings", 2048),
    Key("width", "hidden_size", 2560),
    Key("depth", "num_hidden_layers", 80),
    Key("num_heads", "num_attention_heads", 40),
    Same("num_key_value_heads", "num_attention_heads"),
    Key("mlp", "intermediate_size", 6912),
    Key("rotary_base", "rope_theta", 10_000.0),
    Key("dropout", "attention_dropout", 0.0),
    Constant("epsilon", 1e-5),
    Fixed("hidden_act", "silu", also=("swish",)),
    Fixed("attention_bias", False),
    Fixed("mlp_bias", False),
    Fixed("tie_word_embeddings", False),
)


def describe_settings(config: EsmcConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rotary_base},
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
        "mask_token_id": vocabulary.mask,
    }


FAMILY = Family(
    name="esmc",
    config=EsmcConfig,
    extends=("bert", "eurobert"),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="ESM C encoder",
    task="fill-mask",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    hugging_face=HuggingFaceMap(
        model_type="esmc",
        architecture="EsmcForMaskedLM",
        rules=RULES,
        stacks={"encoder": "depth"},
        body=("esmc.",),
        heads=("lm_head.",),
        before_import=(add_prefix("esmc.", ("embed_tokens.", "layers.", "norm.")),),
        keys=KEYS,
        settings=describe_settings,
        prepare=fill_older_keys,
        head_map=HeadMap(
            prefix="Esmc",
            classes={"ForQuestionAnswering": None, "ForMultipleChoice": None},
            rules={
                "ForSequenceClassification": (
                    *map_linear("classifier/transform", "classifier.dense"),
                    *map_linear("classifier/scores/out", "classifier.out_proj"),
                ),
                "ForTokenClassification": map_linear("classifier/out", "score"),
            },
            dropout=("classifier_dropout", 0.1),
        ),
    ),
)
