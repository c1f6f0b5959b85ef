"""The names of fine-tuning heads in transformers: what all families share, for each kind of head.

The encoder's names are in the map of its family, and differences between families in its `HeadMap`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from data.examples.tag_schemes import detect_scheme
from models.config.base import EncoderConfig
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.heads import HeadedConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.convert import find_model_family
from pretrain.families.family_record import HeadClass, HeadMap, NamedRate
from pretrain.families.labels import name_labels, read_labels

EMBEDDER = "embedder"  # key of the result of `embedder_folder.read_modules` beside config.json's


class HeadConversion(NamedTuple):
    """A kind of head.

    Attributes:
      settings: (configuration, `HeadMap`) -> entries of config.json.
      read: (content of config.json, encoder, `HeadMap`) -> configuration; raises ValueError for an
        unsupported setting.
      reads_rows: whether it reads the pooled row.
    """

    suffix: HeadClass
    settings: Callable[[Any, HeadMap], dict[str, Any]]
    read: Callable[[Mapping[str, Any], EncoderConfig, HeadMap], HeadedConfig]
    reads_rows: bool = True


def describe_dropout(config: HeadedConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the dropout before the last layer, under the family's name for it, if it has one."""
    named = head_map.find_dropout(HEAD_CONVERSIONS[type(config)].suffix)
    return {named[0]: config.dropout} if named else {}


def describe_classes(config: ClassifierConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the labels, the dropout and the problem type of a classifier."""
    kind = "single_label_classification" if config.labels else "regression"
    labels = name_labels(config.labels or ("LABEL_0",))
    return labels | describe_dropout(config, head_map) | {"problem_type": kind}


def describe_tags(config: TaggerConfig, head_map: HeadMap) -> dict[str, Any]:
    """Return the tags and the dropout of a tagger."""
    return name_labels(config.labels) | describe_dropout(config, head_map)


def read_dropout(
    hf_config: Mapping[str, Any], named: NamedRate | None, encoder_rate: float
) -> float:
    """Return a dropout rate of a config.json, where null means the encoder's rate.

    Args:
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
        dropout=read_dropout(
            hf_config, head_map.find_dropout("ForSequenceClassification"), encoder.dropout
        ),
    )


def read_tags(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> TaggerConfig:
    """Return the configuration of a tagger; its scheme is the one that the names of the tags fit.

    The schemes BIO and IOB1 have the same names. It is IOB1 where some type has only an I-.
    """
    labels = read_labels(hf_config)
    scheme: Any = detect_scheme([[label] for label in labels])
    named = head_map.find_dropout("ForTokenClassification")
    dropout = read_dropout(hf_config, named, encoder.dropout)
    return TaggerConfig(encoder=encoder, labels=labels, dropout=dropout, scheme=scheme)


def read_spans(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> SpanReaderConfig:
    """Return the configuration of a span reader, which answers every question."""
    named = head_map.find_dropout("ForQuestionAnswering")
    rate = read_dropout(hf_config, named, (named[1] if named else None) or 0.0)
    return SpanReaderConfig(encoder=encoder, dropout=rate)


def read_choices(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> ChoiceConfig:
    """Return the configuration of a model that chooses."""
    named = head_map.find_dropout("ForMultipleChoice")
    rate = read_dropout(hf_config, named, encoder.dropout)
    return ChoiceConfig(encoder=encoder, dropout=rate)


def read_vectors(
    hf_config: Mapping[str, Any], encoder: EncoderConfig, head_map: HeadMap
) -> EmbedderConfig:
    """Return the configuration of an embedder, whose pooling is not in config.json."""
    return EmbedderConfig(encoder=encoder, **hf_config[EMBEDDER])


HEAD_CONVERSIONS: dict[type[HeadedConfig], HeadConversion] = {
    ClassifierConfig: HeadConversion("ForSequenceClassification", describe_classes, read_classes),
    TaggerConfig: HeadConversion(
        "ForTokenClassification", describe_tags, read_tags, reads_rows=False
    ),
    SpanReaderConfig: HeadConversion(
        "ForQuestionAnswering", describe_dropout, read_spans, reads_rows=False
    ),
    ChoiceConfig: HeadConversion("ForMultipleChoice", describe_dropout, read_choices),
    EmbedderConfig: HeadConversion(
        "Model", lambda config, head_map: {}, read_vectors, reads_rows=False
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
