"""What a new head on an encoder is called by transformers: for each kind of head and each family, how our names become theirs.

The encoder's own names are those of its family's table; a rule is as in pretrain/convert/name_map.py.
"""

from collections.abc import Callable
from typing import NamedTuple

from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.families.rules import linear

DROPOUT = {
    "distilbert": "seq_classif_dropout",
    "albert": "classifier_dropout_prob",
}  # else classifier_dropout


class Head(NamedTuple):
    """suffix: of the name of their class. rules: of the head's parameters, by family. settings: (config, family) -> entries of config.json.

    moved: names of the encoder that are others beside this head, by their stems. left_out: those that their class does not have.
    """

    suffix: str
    rules: dict[str, tuple]
    settings: Callable
    moved: dict[str, str] = {}
    left_out: tuple[str, ...] = ()


def named(labels):
    """The two tables of config.json that name what is told."""
    names = dict(enumerate(labels))
    return {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }


def dropped(config, family):
    """The dropout in front of the last layer, under the name that a family has for it."""
    return {DROPOUT.get(family, "classifier_dropout"): config.dropout}


def classes(config, family):
    kind = "single_label_classification" if config.labels else "regression"
    return named(config.labels or ("LABEL_0",)) | dropped(config, family) | {"problem_type": kind}


def tags(config, family):
    return named(config.labels) | dropped(config, family)


def scores(config, family):
    own = {
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
        "summary_last_dropout": config.dropout,
    }
    return own if family == "electra" else dropped(config, family)


def spans(config, family):
    return (
        {"qa_dropout": config.dropout} if family == "distilbert" else {}
    )  # the others drop nothing there


POOLERS = (
    "bert.pooler.dense",
    "roberta.pooler.dense",
    "albert.pooler",
)  # heads that read every token have none
POOLED = linear("classifier/out", "classifier")


def hidden(transform, out):
    """A head with a hidden layer of its own."""
    return (*linear("classifier/transform", transform), *linear("classifier/scores/out", out))


HEADS = {
    ClassifierConfig: Head(
        "ForSequenceClassification",
        {
            "bert": POOLED,
            "albert": POOLED,
            # Their head has a hidden layer where ours is the encoder's pooler: the same numbers under another name.
            "roberta": linear("classifier/out", "classifier.out_proj"),
            "electra": hidden("classifier.dense", "classifier.out_proj"),
            "distilbert": hidden("pre_classifier", "classifier"),
        },
        classes,
        {"roberta.pooler.dense": "classifier.dense"},
    ),
    TaggerConfig: Head(
        "ForTokenClassification",
        dict.fromkeys(("bert", "albert", "roberta", "electra", "distilbert"), POOLED),
        tags,
        left_out=POOLERS,
    ),
    SpanReaderConfig: Head(
        "ForQuestionAnswering",
        dict.fromkeys(
            ("bert", "albert", "roberta", "electra", "distilbert"), linear("span/out", "qa_outputs")
        ),
        spans,
        left_out=POOLERS,
    ),
    ChoiceConfig: Head(
        "ForMultipleChoice",
        {
            **dict.fromkeys(("bert", "albert", "roberta"), POOLED),
            "electra": hidden("sequence_summary.summary", "classifier"),
            "distilbert": hidden("pre_classifier", "classifier"),
        },
        scores,
    ),
}
