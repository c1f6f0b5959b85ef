"""Linformer: models/linformer.py. Hugging Face transformers opens it with a file of the export.

The file is remote_code/linformer.py, whose names are below.
"""

import dataclasses

from data.objectives.masked_lm import MaskedLm
from models.config.linformer import LinformerConfig
from pretrain.families.bert import SIZES, import_masked_lm, map_mlm_head
from pretrain.families.family_record import Family, HuggingFaceMap
from pretrain.families.key_rules import Key
from pretrain.families.remote_code import describe_code, name_code
from pretrain.families.rules import SAME, Rules, map_layer, map_linear, map_norm

NAME = "linformer"
TABLES = ("token_embedding", "position_embedding", "token_type_embedding")
PROJECTIONS = {  # {sharing: names of the matrices of a layer}
    "none": ("head_key_projection", "head_value_projection"),
    "headwise": ("key_projection", "value_projection"),
    "key-value": ("projection",),
    "layerwise": (),
}
OURS, THEIRS = "linformer/encoder/layers", "layers.{i}"
RULES = (
    *((f"linformer/embeddings/{name}/embedding", f"{name}.weight", SAME) for name in TABLES),
    *map_norm("linformer/embeddings/norm", "norm"),
    *map_layer(
        OURS,
        THEIRS,
        query="attention.query",
        key="attention.key",
        value="attention.value",
        out="attention.out",
        attention_norm="attention_norm",
        up="up",
        down="down",
        mlp_norm="mlp_norm",
    ),
    *map_linear("linformer/pooler", "pooler"),
    *map_mlm_head("mlm_head", "head.transform", "head.norm", "head.bias"),
)
ABSENT = {"segments": 1, "epsilon": 1e-5}  # where it is not as in a BERT
KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 50265),
    Key("length", "max_position_embeddings", 512),
    *(key._replace(absent=ABSENT.get(key.ours, key.absent)) for key in SIZES),
    Key("rank", "rank", 256),
    Key("sharing", "sharing", "layerwise"),
)


def import_documents(config: LinformerConfig) -> MaskedLm:
    """Return the objective of an imported encoder, which reads one text a row."""
    return dataclasses.replace(import_masked_lm(config), rows="documents")


def make_rules(config: LinformerConfig) -> Rules:
    """Return the rules of a configuration."""
    shared = (("linformer/projection", "projection", SAME),)
    of_layers = (
        (f"{OURS}/attention/{name}", f"{THEIRS}.attention.{name}", SAME)
        for name in PROJECTIONS[config.sharing]
    )
    return (*RULES, *(shared if config.sharing == "layerwise" else of_layers))


FAMILY = Family(
    name=NAME,
    config=LinformerConfig,
    extends=("bert",),
    objectives=(MaskedLm,),
    make_import_objective=import_documents,
    predictor="fill_mask:MaskFiller",
    title="Linformer encoder",
    task="fill-mask",
    untrained_parts="the pooler",
    token_roles=("pad", "cls", "sep", "mask"),
    template="cls_sep_sep",
    hugging_face=HuggingFaceMap(
        model_type=NAME,
        architecture="LinformerForMaskedLM",
        rules=make_rules,
        stacks={"linformer/encoder": "depth"},
        body=(*(f"{name}." for name in TABLES), "norm.", "layers.", "projection"),
        heads=("pooler.", "head."),
        sentence_heads=("pooler.",),
        keys=KEYS,
        settings=describe_code(
            NAME,
            AutoConfig="LinformerConfig",
            AutoModel="LinformerModel",
            AutoModelForMaskedLM="LinformerForMaskedLM",
        ),
        code=name_code(NAME),
    ),
)
