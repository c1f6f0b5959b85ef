"""ALBERT: models/albert.py, and `AlbertForPreTraining` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.masked_lm import MaskedLm
from data.objectives.sentence_order import SentenceOrder
from models.config.albert import AlbertConfig
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import TANH_GELU, Fixed, Key
from pretrain.families.rules import map_embeddings, map_layer, map_linear
from pretrain.families.tensor_steps import tie

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

# The one layer.
OURS, THEIRS = "albert/encoder/layer", "albert.encoder.albert_layer_groups.0.albert_layers.0"

RULES = (
    *map_embeddings("albert/embeddings", "albert.embeddings", **bert.TABLES),
    *map_linear("albert/embedding_projection", "albert.encoder.embedding_hidden_mapping_in"),
    *map_layer(
        OURS,
        THEIRS,
        query="attention.query",
        key="attention.key",
        value="attention.value",
        out="attention.dense",
        attention_norm="attention.LayerNorm",
        up="ffn",
        down="ffn_output",
        mlp_norm="full_layer_layer_norm",
    ),
    *map_linear("albert/pooler", "albert.pooler"),
    *bert.map_mlm_head(
        "mlm_head", "predictions.dense", "predictions.LayerNorm", "predictions.bias"
    ),
    *map_linear("sentence_order_head", "sop_classifier.classifier"),
)
SENTENCE_HEADS = ("albert.pooler.", "sop_classifier.")
HEADS = ("predictions.", *SENTENCE_HEADS)  # released encoders lack some of them
COPIES = {  # output and input share a table; older files have it twice
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
KEYS = (  # our field, their key, the meaning of an absent key: xxlarge
    Key("vocab", "vocab_size", 30000),
    Key("length", "max_position_embeddings", 512),
    Key("segments", "type_vocab_size", 2),
    Key("embedding", "embedding_size", 128),
    Key("width", "hidden_size", 4096),
    Key("depth", "num_hidden_layers", 12),
    Key("num_heads", "num_attention_heads", 64),
    Key("mlp", "intermediate_size", 16384),
    Key("dropout", "hidden_dropout_prob", 0.0),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.0),
    Key("epsilon", "layer_norm_eps", 1e-12),
    # The authors' gelu is this one. Conversions of their first release call it "gelu", which is
    # another function.
    Fixed("hidden_act", "gelu_new", also=TANH_GELU),
    Fixed("position_embedding_type", "absolute"),
    Fixed("num_hidden_groups", 1),
    Fixed("inner_group_num", 1),
    Fixed("tie_word_embeddings", True),
)


def describe_settings(config: AlbertConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
    }


FAMILY = Family(
    name="albert",
    config=AlbertConfig,
    extends=("bert",),
    objectives=(MaskedLm, SentenceOrder),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="ALBERT encoder",
    task="fill-mask",
    untrained_parts="the pooler and the sentence-order head",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    token_types=True,
    hugging_face=HuggingFaceMap(
        model_type="albert",
        architecture="AlbertForPreTraining",
        rules=RULES,
        body=("albert.",),
        heads=HEADS,
        sentence_heads=SENTENCE_HEADS,
        before_import=(*bert.update_names("albert."), tie(COPIES)),
        buffers=bert.list_buffers("albert"),
        keys=KEYS,
        settings=describe_settings,
        head_map=HeadMap(
            prefix="Albert", pooler="albert.pooler", dropout=("classifier_dropout_prob", 0.1)
        ),
    ),
)
