"""RoBERTa: models/roberta.py, and `RobertaForMaskedLM` of Hugging Face transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from data.objectives.masked_lm import MaskedLm
from models.config.roberta import RobertaConfig
from pretrain.families import bert
from pretrain.families.family_record import CLASSIFIER, Family, HeadMap, HuggingFaceMap
from pretrain.families.key_rules import Key
from pretrain.families.rules import map_linear
from pretrain.families.tensor_steps import tie

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
KEYS = (
    *bert.SIZES,
    Key("vocab", "vocab_size", 50265),
    Key("first_position", "pad_token_id", 1),  # their value is one less than ours
    # their value includes the rows before the first position
    Key("length", "max_position_embeddings", 512),
    *bert.FIXED,
)


def describe_settings(config: RobertaConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """Return further entries of config.json. Raises as `check_first_position`."""
    check_first_position(config, vocabulary)
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
        body=("roberta.",),
        heads=("lm_head.", *SENTENCE_HEADS),
        sentence_heads=SENTENCE_HEADS,
        before_import=(*bert.update_names("roberta."), tie(COPIES)),
        buffers=bert.list_buffers("roberta"),
        keys=KEYS,
        settings=describe_settings,
        read=read_fields,
        head_map=HeadMap(
            prefix="Roberta",
            rules={
                "ForSequenceClassification": (
                    # The hidden layer of their head is our encoder's pooler: the same weights.
                    *map_linear("roberta/pooler", "classifier.dense"),
                    *map_linear("classifier/out", "classifier.out_proj"),
                ),
                "ForMultipleChoice": CLASSIFIER,
            },
            pooler="roberta.pooler.dense",
            fixed_dropout={"ForMultipleChoice": True},
        ),
    ),
)
