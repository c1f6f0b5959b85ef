"""The names of fine-tuning heads in transformers: what all families share, for each kind of head.

The encoder's names are in the map of its family, and differences between families in its `HeadMap`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from models.config.heads import (
    ChoiceConfig,
    ClassifierConfig,
    HeadedConfig,
    SpanReaderConfig,
    TaggerConfig,
)
from pretrain.families.family_record import HeadMap
from pretrain.families.rules import map_linear


class HeadConversion(NamedTuple):
    """A kind of head.

    Attributes:
      suffix: the end of the name of its class in transformers.
      rules: `HeadMap` -> rules of the head's parameters.
      settings: (configuration, `HeadMap`) -> entries of config.json.
      reads_rows: whether it reads the pooled row.
      is_classifier: whether the family's names for a classifier's neighbours are used.
    """

    suffix: str
    rules: Callable[[HeadMap], tuple[Any, ...]]
    settings: Callable[[Any, HeadMap], dict[str, Any]]
    reads_rows: bool = True
    is_classifier: bool = False


def name_labels(labels: Sequence[str]) -> dict[str, Any]:
    """Return the two tables of config.json that name the labels."""
    names = dict(enumerate(labels))
    return {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }


def describe_dropout(config: HeadedConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the dropout before the last layer, under the family's name for it."""
    return {head_map.dropout: config.dropout}


def describe_classes(config: ClassifierConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the labels, the dropout and the problem type of a classifier."""
    kind = "single_label_classification" if config.labels else "regression"
    labels = name_labels(config.labels or ("LABEL_0",))
    return labels | describe_dropout(config, head_map) | {"problem_type": kind}


def describe_tags(config: TaggerConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the tags and the dropout of a tagger."""
    return name_labels(config.labels) | describe_dropout(config, head_map)


def describe_choices(config: ChoiceConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the family's settings of a model that chooses, the dropout by default."""
    if head_map.choice_settings:
        return head_map.choice_settings(config)
    return describe_dropout(config, head_map)


def describe_spans(config: SpanReaderConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the dropout of a span reader, if the family has a name for it."""
    return {head_map.span_dropout[0]: config.dropout} if head_map.span_dropout else {}


HEAD_CONVERSIONS: dict[type[HeadedConfig], HeadConversion] = {
    ClassifierConfig: HeadConversion(
        "ForSequenceClassification",
        lambda head_map: head_map.classifier,
        describe_classes,
        is_classifier=True,
    ),
    TaggerConfig: HeadConversion(
        "ForTokenClassification",
        lambda head_map: map_linear("classifier/out", "classifier"),
        describe_tags,
        reads_rows=False,
    ),
    SpanReaderConfig: HeadConversion(
        "ForQuestionAnswering",
        lambda head_map: map_linear("span/out", "qa_outputs"),
        describe_spans,
        reads_rows=False,
    ),
    ChoiceConfig: HeadConversion(
        "ForMultipleChoice",
        lambda head_map: head_map.classifier if head_map.choice is None else head_map.choice,
        describe_choices,
    ),
}
