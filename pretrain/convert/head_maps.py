"""The names of fine-tuning heads in transformers: what all families share, for each kind of head.

The encoder's names are in the map of its family, and differences between families in its `HeadMap`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from data.examples.tag_schemes import detect_scheme
from models.config.base import EncoderConfig
from models.config.heads import (
    ChoiceConfig,
    ClassifierConfig,
    HeadedConfig,
    SpanReaderConfig,
    TaggerConfig,
)
from pretrain.convert import find_model_family
from pretrain.families.family_record import HeadMap
from pretrain.families.labels import name_labels, read_labels


class HeadConversion(NamedTuple):
    """A kind of head.

    Attributes:
      suffix: the usual end of the name of its class in transformers.
      rules: `HeadMap` -> rules of the head's parameters.
      settings: (configuration, `HeadMap`) -> entries of config.json.
      read: (content of config.json, encoder, `HeadMap`) -> configuration; raises ValueError for an
        unsupported setting.
      reads_rows: whether it reads the pooled row.
      is_classifier: whether the family's names for a classifier's neighbours are used.
    """

    suffix: str
    rules: Callable[[HeadMap], tuple[Any, ...]]
    settings: Callable[[Any, HeadMap], dict[str, Any]]
    read: Callable[[Mapping[str, Any], EncoderConfig, HeadMap], HeadedConfig]
    reads_rows: bool = True
    is_classifier: bool = False


def describe_dropout(config: HeadedConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the dropout before the last layer, under the family's name for it, if it has one."""
    return {head_map.dropout[0]: config.dropout} if head_map.dropout else {}


def describe_classes(config: ClassifierConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the labels, the dropout and the problem type of a classifier."""
    kind = "single_label_classification" if config.labels else "regression"
    labels = name_labels(config.labels or ("LABEL_0",))
    return labels | describe_dropout(config, head_map) | {"problem_type": kind}


def describe_tags(config: TaggerConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the tags and the dropout of a tagger."""
    return name_labels(config.labels) | describe_dropout(config, head_map)


def describe_choices(config: ChoiceConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the dropout of a model that chooses, and the family's other settings of it."""
    named = find_choice_dropout(head_map)
    return {**head_map.choice_settings, **({named[0]: config.dropout} if named else {})}


def find_choice_dropout(head_map: HeadMap) -> tuple[str, float | None] | None:
    """Return the dropout of a model that chooses, as `HeadMap.dropout`."""
    return head_map.choice_dropout or head_map.dropout


def describe_spans(config: SpanReaderConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the dropout of a span reader, if the family has a name for it."""
    return {head_map.span_dropout[0]: config.dropout} if head_map.span_dropout else {}


def read_dropout(
    hf_config: Mapping[str, Any], named: tuple[str, float | None] | None, encoder_rate: float
) -> float:
    """Return a dropout rate of a config.json, where null means the encoder's rate.

    Args:
      hf_config: the content of config.json.
      named: (their key, the rate of an absent key) as of `HeadMap.dropout`.
      encoder_rate: the rate of the encoder, which holds where the family has no key.

    Raises:
      ValueError: the value is not a number.
    """
    rate = hf_config.get(*named) if named else None
    if named and type(rate) not in (int, float, type(None)):
        raise ValueError(f"{named[0]} is {rate!r}; expected float")
    return encoder_rate if rate is None else float(rate)


def read_classes(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> ClassifierConfig:
    """Return the configuration of a classifier."""
    problem = hf_config.get("problem_type")
    if problem not in (None, "single_label_classification", "regression"):
        raise ValueError(f"problem_type is {problem!r}; a row has one class here, or one score")
    labels = read_labels(hf_config)
    return ClassifierConfig(
        encoder=encoder,
        labels=() if problem == "regression" or len(labels) == 1 else labels,
        dropout=read_dropout(hf_config, head_map.dropout, encoder.dropout),
    )


def read_tags(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> TaggerConfig:
    """Return the configuration of a tagger; its scheme is the one that the names of the tags fit.

    The schemes BIO and IOB1 have the same names. It is IOB1 where some type has only an I-.
    """
    labels = read_labels(hf_config)
    scheme: Any = detect_scheme([[label] for label in labels])
    dropout = read_dropout(hf_config, head_map.dropout, encoder.dropout)
    return TaggerConfig(encoder=encoder, labels=labels, dropout=dropout, scheme=scheme)


def read_spans(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> SpanReaderConfig:
    """Return the configuration of a span reader, which answers every question."""
    named = head_map.span_dropout
    rate = read_dropout(hf_config, named, named[1] if named else 0.0)
    return SpanReaderConfig(encoder=encoder, dropout=rate)


def read_choices(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> ChoiceConfig:
    """Return the configuration of a model that chooses."""
    for key, only in head_map.choice_settings.items():
        if (value := hf_config.get(key, only)) != only:
            raise ValueError(f"{key} is {value!r}; a multiple choice head here has {only!r}")
    rate = read_dropout(hf_config, find_choice_dropout(head_map), encoder.dropout)
    return ChoiceConfig(encoder=encoder, dropout=rate)


HEAD_CONVERSIONS: dict[type[HeadedConfig], HeadConversion] = {
    ClassifierConfig: HeadConversion(
        "ForSequenceClassification",
        lambda head_map: head_map.classifier,
        describe_classes,
        read_classes,
        is_classifier=True,
    ),
    TaggerConfig: HeadConversion(
        "ForTokenClassification",
        lambda head_map: head_map.tags,
        describe_tags,
        read_tags,
        reads_rows=False,
    ),
    SpanReaderConfig: HeadConversion(
        "ForQuestionAnswering",
        lambda head_map: head_map.spans,
        describe_spans,
        read_spans,
        reads_rows=False,
    ),
    ChoiceConfig: HeadConversion(
        "ForMultipleChoice",
        lambda head_map: head_map.classifier if head_map.choice is None else head_map.choice,
        describe_choices,
        read_choices,
    ),
}


def list_unread_modules(config: Any) -> tuple[str, ...]:
    """Return their names of the encoder's modules that a fine-tuned model does not use: the pooler.

    A model that reads every token is saved without it.
    """
    head = HEAD_CONVERSIONS.get(type(config))
    hf_map = None if head is None or head.reads_rows else find_model_family(config).hugging_face
    if hf_map is None:
        return ()
    pooler = hf_map.fine_tuned_names.pooler
    return (f"{pooler}.",) if pooler else ()
