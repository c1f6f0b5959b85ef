"""What a new head on an encoder is called by transformers: what is alike in all families, for each kind of head.

The encoder's own names are those of its family's map, and what differs between families is in its `HeadMap`.
"""

from collections.abc import Callable
from typing import NamedTuple

from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.families.record import HeadMap
from pretrain.families.rules import linear


class Head(NamedTuple):
    """suffix: of the name of their class. rules: `HeadMap` -> rules of the head's parameters. settings: (config, `HeadMap`) -> entries of config.json.

    reads_rows: whether it reads the pooled row. is_classifier: whether the family's names beside a classifier are used.
    """

    suffix: str
    rules: Callable[[HeadMap], tuple]
    settings: Callable
    reads_rows: bool = True
    is_classifier: bool = False


def name_labels(labels):
    """Return the two tables of config.json that name the labels."""
    names = dict(enumerate(labels))
    return {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }


def describe_dropout(config, head_map):
    """Return the dropout in front of the last layer, under the name that a family has for it."""
    return {head_map.dropout: config.dropout}


def describe_classes(config, head_map):
    kind = "single_label_classification" if config.labels else "regression"
    labels = name_labels(config.labels or ("LABEL_0",))
    return labels | describe_dropout(config, head_map) | {"problem_type": kind}


def describe_tags(config, head_map):
    return name_labels(config.labels) | describe_dropout(config, head_map)


def describe_choices(config, head_map):
    return (
        head_map.choice_settings(config)
        if head_map.choice_settings
        else describe_dropout(config, head_map)
    )


def describe_spans(config, head_map):
    return {head_map.span_dropout[0]: config.dropout} if head_map.span_dropout else {}


HEADS = {
    ClassifierConfig: Head(
        "ForSequenceClassification",
        lambda head_map: head_map.classifier,
        describe_classes,
        is_classifier=True,
    ),
    TaggerConfig: Head(
        "ForTokenClassification",
        lambda head_map: linear("classifier/out", "classifier"),
        describe_tags,
        reads_rows=False,
    ),
    SpanReaderConfig: Head(
        "ForQuestionAnswering",
        lambda head_map: linear("span/out", "qa_outputs"),
        describe_spans,
        reads_rows=False,
    ),
    ChoiceConfig: Head(
        "ForMultipleChoice",
        lambda head_map: head_map.classifier if head_map.choice is None else head_map.choice,
        describe_choices,
    ),
}
