"""DeBERTa-v3: models/deberta_v3.py, and two models of Hugging Face transformers.

Theirs are `DebertaV2Model`, the discriminator, and in the folder `generator` a
`DebertaV2ForMaskedLM`. transformers has no head of replaced tokens; its tensors have the names of
the released files. A discriminator's folder has its whole table, and ours what it differs by from
the generator's.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from data.objectives.replaced_token import ReplacedToken
from models.config.deberta_v3 import DebertaV3Config
from pretrain.families import bert, electra
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap, SecondModel
from pretrain.families.key_rules import EXACT_GELU, Fixed, Key
from pretrain.families.rules import SAME, Rules, map_layer, map_linear, map_norm
from pretrain.families.tensor_steps import Tensors

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

TABLE = "deberta.embeddings.word_embeddings.weight"
GENERATOR_TABLE = f"generator/{TABLE}"


def map_encoder(ours: str, theirs: str) -> Rules:
    """Return the rules of a network without its table."""
    return (
        *map_norm(f"{ours}/norm", f"{theirs}.embeddings.LayerNorm"),
        (f"{ours}/position_embedding/embedding", f"{theirs}.encoder.rel_embeddings.weight", SAME),
        *map_norm(f"{ours}/position_norm", f"{theirs}.encoder.LayerNorm"),
        *map_layer(
            f"{ours}/encoder/layers",
            f"{theirs}.encoder.layer.{{i}}",
            query="attention.self.query_proj",
            key="attention.self.key_proj",
            value="attention.self.value_proj",
            out="attention.output.dense",
            attention_norm="attention.output.LayerNorm",
            up="intermediate.dense",
            down="output.dense",
            mlp_norm="output.LayerNorm",
        ),
    )


DISCRIMINATOR = map_encoder("discriminator", "deberta")
RULES = (
    ("token_embedding/embedding", GENERATOR_TABLE, SAME),
    ("token_delta/embedding", TABLE, SAME),
    *DISCRIMINATOR,
    *map_norm("discriminator_head/norm", "mask_predictions.LayerNorm"),
    *map_linear("discriminator_head/transform", "mask_predictions.dense"),
    *map_linear("discriminator_head/score", "mask_predictions.classifier"),
    *map_encoder("generator", "generator/deberta"),
    *bert.map_mlm_head(
        "mlm_head",
        "generator/lm_predictions.lm_head.dense",
        "generator/lm_predictions.lm_head.LayerNorm",
        "generator/lm_predictions.lm_head.bias",
    ),
)
ENCODER_RULES = (("token_embedding/embedding", TABLE, SAME), *DISCRIMINATOR)


def make_rules(config: DebertaV3Config) -> Rules:
    """Return the rules of a pretrained model, or of the encoder of a fine-tuned one."""
    return RULES if config.has_generator else ENCODER_RULES


def subtract_tables(config: DebertaV3Config, tensors: Tensors) -> Tensors:
    """Return the tensors with the difference of the two tables as the discriminator's.

    A folder without a generator gives it the discriminator's table, from which nothing differs.

    Raises:
      ValueError: the tables have different shapes.
    """
    names = set(tensors)
    if not config.has_generator or TABLE not in names:
        return tensors
    table = tensors[TABLE]
    if GENERATOR_TABLE not in names:
        return ChainMap({GENERATOR_TABLE: table, TABLE: np.zeros_like(table)}, dict(tensors))
    generator_table = tensors[GENERATOR_TABLE]
    if table.shape != generator_table.shape:
        raise ValueError(
            f"{TABLE} has shape {list(table.shape)}, and in generator/ "
            f"{list(generator_table.shape)}; one is the other's and a difference"
        )
    difference = table.astype(np.float32) - generator_table.astype(np.float32)
    return ChainMap({TABLE: difference}, dict(tensors))


def add_tables(config: DebertaV3Config, tensors: Tensors) -> Tensors:
    """Return the tensors with the discriminator's whole table."""
    return {**tensors, TABLE: tensors[GENERATOR_TABLE] + tensors[TABLE]}


def take_encoder(config: DebertaV3Config, params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of the discriminator, whose table is its own."""
    if not config.has_generator:
        return params
    table = params["token_embedding"]["embedding"] + params["token_delta"]["embedding"]
    return params | {"token_embedding": {"embedding": table}}


SHARED_KEYS = (  # our field, their key, the meaning of an absent key
    Key("vocab", "vocab_size", 128_100),
    Key("length", "max_position_embeddings", 512),
    Key("width", "hidden_size", 1536),
    Key("num_heads", "num_attention_heads", 24),
    Key("mlp", "intermediate_size", 6144),
    Key("buckets", "position_buckets", -1),
    Key("max_distance", "max_relative_positions", -1),
    Key("dropout", "hidden_dropout_prob", 0.1),
    Key("attention_dropout", "attention_probs_dropout_prob", 0.1),
    Key("epsilon", "layer_norm_eps", 1e-7),
    Fixed("hidden_act", "gelu", also=EXACT_GELU),
    Fixed("relative_attention", True, absent=False),
    Fixed("pos_att_type", "c2p|p2c", absent=""),
    Fixed("share_att_key", True, absent=False),
    Fixed("norm_rel_ebd", "layer_norm", absent="none"),
    Fixed("position_biased_input", False, absent=True),
    Fixed("type_vocab_size", 0),
    Fixed("conv_kernel_size", 0, written=False),
    Fixed("tie_word_embeddings", True),
)
DEPTH = Key("depth", "num_hidden_layers", 24)
GENERATOR_DEPTH = Key("generator_depth", "num_hidden_layers", 12)


def describe_settings(config: DebertaV3Config, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json; `legacy` means another head of masked tokens."""
    return {
        "legacy": False,
        "initializer_range": 0.02,
        "pooler_hidden_size": config.width,
        "pad_token_id": vocabulary.pad,
    }


def fill_positions(theirs: dict[str, Any]) -> dict[str, Any]:
    """Return their configuration with the terms of positions in order, and the last distance.

    Raises:
      ValueError: the heads or the embeddings have a width of their own.
    """
    theirs = dict(theirs)
    terms = theirs.get("pos_att_type") or ""
    terms = terms.split("|") if isinstance(terms, str) else terms
    if not isinstance(terms, list):
        raise ValueError(f"pos_att_type is {terms!r:.80}; expected a list, or texts joined by |")
    theirs["pos_att_type"] = "|".join(sorted(str(term).strip().lower() for term in terms))
    distance = theirs.get("max_relative_positions", -1)
    if type(distance) is int and distance < 1:
        theirs["max_relative_positions"] = theirs.get("max_position_embeddings", 512)
    width, num_heads = theirs.get("hidden_size", 1536), theirs.get("num_attention_heads", 24)
    if theirs.get("embedding_size", width) != width:
        raise ValueError(
            f"embedding_size is {theirs['embedding_size']!r:.80} and hidden_size {width!r:.80}; "
            "a DeBERTa-v3 has one for both"
        )
    head_width = theirs.get("attention_head_size")
    if head_width is not None and head_width * num_heads != width:
        raise ValueError(
            f"attention_head_size is {head_width!r:.80}, with {num_heads} heads in a width of "
            f"{width}; only width / heads is supported"
        )
    return theirs


def describe_absent_generator(discriminator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of the generator of a discriminator whose folder has none."""
    depth = discriminator.get(DEPTH.theirs, DEPTH.absent)
    if type(depth) is not int:
        return dict(discriminator)  # the reader of the discriminator names the wrong depth
    return {**discriminator, DEPTH.theirs: max(1, depth // 2)}


def describe_generator(config: DebertaV3Config) -> list[tuple[str, str]]:
    """Return the row of a model card about the generator."""
    layers = f"{config.generator_depth} layers of the same width, in the folder `generator`"
    return [("generator", layers)]


FAMILY = Family(
    name="deberta_v3",
    config=DebertaV3Config,
    extends=("bert", "electra"),
    objectives=(ReplacedToken,),
    make_import_objective=electra.import_replaced_token,
    predictor="fill_mask:ReplacementDetector",
    title="DeBERTa-v3 encoder and its generator",
    task="feature-extraction",
    use="states of tokens",
    describe_card_rows=describe_generator,
    token_roles=("pad", "unk", "cls", "sep", "mask"),
    template="cls_sep",
    take_encoder=take_encoder,
    hugging_face=HuggingFaceMap(
        model_type="deberta-v2",
        architecture="DebertaV2Model",
        rules=make_rules,
        stacks={"discriminator/encoder": "depth", "generator/encoder": "generator_depth"},
        body=("deberta.",),
        heads=(
            "mask_predictions.",
            # of a folder of the discriminator alone
            *("generator/lm_predictions.", "generator/deberta.encoder."),
            "generator/deberta.embeddings.LayerNorm.",
        ),
        before_import=(*bert.update_names("deberta."), subtract_tables),
        after_export=(add_tables,),
        # Released files have a table of positions that no layer reads.
        buffers=tuple(
            f"{part}deberta.embeddings.position_{name}"
            for part in ("", "generator/")
            for name in ("ids", "embeddings.weight")
        ),
        keys=(*SHARED_KEYS, DEPTH),
        settings=describe_settings,
        prepare=fill_positions,
        second_models={
            "generator": SecondModel(
                architecture="DebertaV2ForMaskedLM",
                keys=(*SHARED_KEYS, GENERATOR_DEPTH),
                describe_absent=describe_absent_generator,
            )
        },
        refused={
            "DebertaV2ForMaskedLM": "a generator, or a discriminator that was saved as one; save "
            "the discriminator by transformers.AutoModel, and put its generator's folder into it "
            "as generator/"
        },
        head_map=HeadMap(
            prefix="DebertaV2",
            rules={
                "ForSequenceClassification": electra.map_hidden_head("pooler.dense", "classifier")
            },
            dropout=("cls_dropout", None),
            fixed={
                kind: {"pooler_dropout": 0.0, "pooler_hidden_act": "gelu"}
                for kind in ("ForSequenceClassification", "ForMultipleChoice")
            },
            fixed_dropout={"ForTokenClassification": True},
        ),
    ),
)
