"""ESM-2: models/esm2.py, and `EsmForMaskedLM` of Hugging Face transformers.

The contact head of a released folder is not imported.
"""

import numpy as np

from data.objectives.masked_lm import MaskedLm
from models.config.esm2 import Esm2Config
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key
from pretrain.families.rules import SAME, map_layer, map_linear, map_norm
from pretrain.families.tensor_steps import Tensors, add_prefix, tie

WORDS = "esm.embeddings.word_embeddings.weight"
RATES = "rotary_embeddings.inv_freq"  # older versions have one for each layer
RULES = (
    ("token_embedding/embedding", WORDS, SAME),
    *map_layer(
        "encoder/layers",
        "esm.encoder.layer.{i}",
        query="attention.self.query",
        key="attention.self.key",
        value="attention.self.value",
        out="attention.output.dense",
        attention_norm="attention.LayerNorm",
        up="intermediate.dense",
        down="output.dense",
        mlp_norm="LayerNorm",
    ),
    *map_norm("norm", "esm.encoder.emb_layer_norm_after"),
    *bert.map_mlm_head("mlm_head", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
)
COPIES = {"lm_head.decoder.weight": WORDS, "lm_head.decoder.bias": "lm_head.bias"}
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 33),
    Key("length", "max_position_embeddings", 1026),
    Key("width", "hidden_size", 768),
    Key("depth", "num_hidden_layers", 12),
    Key("num_heads", "num_attention_heads", 12),
    Key("mlp", "intermediate_size", 3072),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("rotary_base", "rope_theta", 10_000.0),
    Key("epsilon", "layer_norm_eps", 1e-12),
    Key("mask_id", "mask_token_id", 32),
    Key("drops_masks", "token_dropout", False),
    Fixed("position_embedding_type", "rotary", absent="absolute"),
    Fixed("emb_layer_norm_before", False),
    Fixed("hidden_act", "gelu", also=EXACT_GELU),
    Fixed("is_folding_model", False),
    Fixed("is_decoder", False),
    Fixed("add_cross_attention", False),
    Fixed("tie_word_embeddings", True),
)


def check_rates(config: Esm2Config, tensors: Tensors) -> Tensors:
    """Return the tensors.

    Raises:
      ValueError: the rates of the rotary positions are others than the model computes.
    """
    K = config.width // config.num_heads
    expected_I = config.rotary_base ** (-np.arange(0, K, 2, dtype=np.float32) / K)
    for name in (name for name in tensors if name.endswith(RATES)):
        found_I = np.float32(tensors[name])
        if found_I.shape != expected_I.shape or not np.allclose(found_I, expected_I, rtol=1e-5):
            raise ValueError(
                f"{name} is not {config.rotary_base:g}^(-2i/{K}) in float32, as this model computes "
                "it (older folders may have it in float16), so its outputs would differ"
            )
    return tensors


FAMILY = Family(
    name="esm2",
    config=Esm2Config,
    extends=("bert",),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="ESM-2 encoder",
    task="fill-mask",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    hugging_face=HuggingFaceMap(
        model_type="esm",
        architecture="EsmForMaskedLM",
        rules=RULES,
        stacks={"encoder": "depth"},
        body=("esm.embeddings.", "esm.encoder."),
        heads=("lm_head.",),
        before_import=(
            add_prefix("esm.", ("embeddings.", "encoder.", "contact_head.", "rotary_embeddings.")),
            tie(COPIES),
            check_rates,
        ),
        buffers=(
            "esm.embeddings.position_ids",
            "esm.embeddings.position_embeddings.weight",
            f"esm.{RATES}",
            f"esm.encoder.layer.*.attention.self.{RATES}",
        ),
        keys=KEYS,
        head_map=HeadMap(
            prefix="Esm",
            classes={"ForQuestionAnswering": None, "ForMultipleChoice": None},
            rules={
                "ForSequenceClassification": (
                    *map_linear("classifier/transform", "classifier.dense"),
                    *map_linear("classifier/scores/out", "classifier.out_proj"),
                )
            },
            fixed_dropout={"ForSequenceClassification": True, "ForTokenClassification": True},
        ),
    ),
)
