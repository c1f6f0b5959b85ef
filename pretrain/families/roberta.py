"""RoBERTa: models/roberta.py, and `RobertaForMaskedLM` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.masked_lm import MaskedLm
from models.config.roberta import RobertaConfig
from pretrain.families import bert
from pretrain.families.family_record import Family, HeadMap, HuggingFaceMap
from pretrain.families.rules import EXACT_GELU, map_linear

if TYPE_CHECKING:
    from data.vocabulary.base import Vocabulary

RULES = (
    *bert.map_encoder("roberta"),
    *bert.map_mlm_head("mlm_head", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
)
SENTENCE_HEADS = ("roberta.pooler.",)  # transformers saves a RobertaForMaskedLM without it
COPIES = {  # output and input share a table; older files have it twice
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}
FIELDS = (  # our field, their key, the meaning of an absent key
    *(field for field in bert.FIELDS if field[0] not in ("vocab", "length")),
    ("vocab", "vocab_size", 50265),
    ("first_position", "pad_token_id", 1),  # their value is one less than ours
    (
        "length",
        "max_position_embeddings",
        512,
    ),  # their value includes the rows before the first position
)
FIXED = bert.FIXED | {"model_type": "roberta"}


def describe_settings(config: RobertaConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json."""
    return {
        "max_position_embeddings": config.first_position + config.length,
        "initializer_range": 0.02,
        "pad_token_id": vocabulary.pad,
        "bos_token_id": vocabulary.cls,
        "eos_token_id": vocabulary.sep,
    }


def read_fields(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return our fields; their table of positions has rows before the first position."""
    first_position = ours["first_position"] + 1
    return ours | {"first_position": first_position, "length": ours["length"] - first_position}


def check_first_position(config: RobertaConfig, vocabulary: Vocabulary) -> None:
    """Raise ValueError unless the first position is the padding's id + 1."""
    if vocabulary.pad != config.first_position - 1:
        raise ValueError(
            "RoBERTa's positions begin at the padding's id + 1. That id is "
            f"{vocabulary.pad} in this vocabulary, but the model's positions begin at "
            f"{config.first_position} (model.first_position)"
        )


FAMILY = Family(
    name="roberta",
    config=RobertaConfig,
    extends=("bert",),
    objectives=(MaskedLm,),
    make_import_objective=bert.import_masked_lm,
    predictor="fill_mask:MaskFiller",
    title="RoBERTa encoder",
    task="fill-mask",
    untrained_parts="the pooler",
    token_roles=("pad", "cls", "sep", "mask"),  # bytes are never unknown
    template="cls_sep_sep",
    hugging_face=HuggingFaceMap(
        model_type="roberta",
        architecture="RobertaForMaskedLM",
        rules=RULES,
        stacks={"roberta/encoder": "depth"},
        prefix="roberta.",
        bare=bert.BARE,
        renamed=bert.RENAMED,
        heads=("lm_head.", *SENTENCE_HEADS),
        sentence_heads=SENTENCE_HEADS,
        copies=COPIES,
        buffers=bert.list_buffers("roberta"),
        fields=FIELDS,
        fixed=FIXED,
        same_values={"hidden_act": EXACT_GELU},
        settings=describe_settings,
        read=read_fields,
        check=check_first_position,
        head_map=HeadMap(
            classes="Roberta",
            # The hidden layer of their head is our encoder's pooler: the same weights.
            classifier=map_linear("classifier/out", "classifier.out_proj"),
            choice=map_linear("classifier/out", "classifier"),
            pooler="roberta.pooler.dense",
            fixed_dropout={"ForMultipleChoice": True},
            renamed_in_classifier={"roberta.pooler.dense": "classifier.dense"},
        ),
    ),
)
