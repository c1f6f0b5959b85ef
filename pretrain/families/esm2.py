"""ESM-2: models/esm2.py, and `EsmForMaskedLM` of Hugging Face transformers."""

import dataclasses

import numpy as np

from data.objectives.masked_lm import MaskedLm
from models.config.esm2 import Esm2Config
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key
from pretrain.families.rules import SAME, Layout, map_layer, map_linear, map_norm
from pretrain.families.tensor_steps import Tensors, add, add_prefix, drop, rename, tie

WORDS = "esm.embeddings.word_embeddings.weight"
RATES = "rotary_embeddings.inv_freq"  # of the model; older versions have one for each layer
FORMATS = ("float32", "float16", "bfloat16")
CONTACTS = "esm.contact_head.regression"
# A kernel of one output.
COLUMN = Layout(theirs=lambda a: a[None], ours=lambda a, shape: a.reshape(shape))
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
    ("contact_weights", f"{CONTACTS}.weight", COLUMN),
    ("contact_bias", f"{CONTACTS}.bias", SAME),
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


def compute_rates(config: Esm2Config) -> np.ndarray:
    """Return the rates of the rotary positions, float32 [K / 2]."""
    import ml_dtypes

    kind = config.rotary_rates
    I = config.width // config.num_heads // 2
    rates_I = (config.rotary_base ** -(np.arange(I) / I)).astype(np.float32)
    return rates_I.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else kind).astype(np.float32)


def list_rates(tensors: Tensors) -> list[str]:
    """Return the names of rates of rotary positions."""
    return [name for name in tensors if name.endswith(RATES)]


def find_rates(config: Esm2Config, tensors: Tensors) -> Esm2Config:
    """Return the configuration with the format of the rates in a folder, if it has any.

    Raises:
      ValueError: they are others than the model computes in any format.
    """
    for name in list_rates(tensors):
        found_I = np.float32(tensors[name])
        for kind in FORMATS:
            refined = dataclasses.replace(config, rotary_rates=kind)
            expected_I = compute_rates(refined)
            # Versions of transformers differ by a rounding in float32.
            limit = 1e-6 if kind == "float32" else 0.0
            if found_I.shape == expected_I.shape and np.allclose(found_I, expected_I, limit, 0):
                return refined
        raise ValueError(
            f"{name} has other rates than {config.rotary_base:g}^(-2i/K), so this model's outputs "
            "would differ"
        )
    return config


ADD_RATES = add(f"esm.{RATES}", compute_rates)
FAMILY = Family(
    name="esm2",
    config=Esm2Config,
    extends=("bert",),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="ESM-2 encoder",
    task="fill-mask",
    untrained_parts="the contact head",
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    hugging_face=HuggingFaceMap(
        model_type="esm",
        architecture="EsmForMaskedLM",
        rules=RULES,
        stacks={"encoder": "depth"},
        body=("esm.",),
        heads=("lm_head.", "esm.contact_head."),
        before_import=(
            add_prefix("esm.", ("embeddings.", "encoder.", "contact_head.", "rotary_embeddings.")),
            rename(("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")),
            tie(COPIES),
            lambda config, tensors: drop(*list_rates(tensors))(config, tensors),
        ),
        refine=find_rates,
        after_export=(ADD_RATES,),
        buffers=(
            "esm.embeddings.position_ids",
            "esm.embeddings.position_embeddings.weight",
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
            after_export=(ADD_RATES,),
            fixed_dropout={"ForSequenceClassification": True, "ForTokenClassification": True},
        ),
    ),
)
