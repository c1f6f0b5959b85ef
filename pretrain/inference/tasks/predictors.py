"""What `predict` does with each kind of head: it reads texts, predicts and formats the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.embedder import EmbedderConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.inference.tasks import (
    predict_answers,
    predict_choices,
    predict_labels,
    predict_tags,
    predict_vectors,
)


def format_label(texts: Sequence[str], result: dict[str, Any]) -> str:
    """Return texts with their label or score, formatted for the terminal."""
    line = (
        f"{result['probability']:7.2%}  {result['label']}"
        if "label" in result
        else f"{result['score']:7.3f}"
    )
    return "\n".join([*texts, f"    {line}"])


class PredictorSpec(NamedTuple):
    """The functions by which `predict` uses a head.

    Attributes:
      make_reader: (trained) -> a function (record, place) -> the head's input, a tuple.
      make_predictor: (trained, batch size) -> a function (texts, places) -> the result of each.
      format_result: (texts, result) -> text for the terminal.
      make_blank: configuration of the model -> the result of a blank line.
      options: further keyword arguments of `make_predictor`, which are options of `predict`.
    """

    make_reader: Callable[..., Any]
    make_predictor: Callable[..., Any]
    format_result: Callable[[Any, dict[str, Any]], str] = format_label
    make_blank: Callable[[Any], dict[str, Any]] = lambda config: {}
    options: tuple[str, ...] = ()


PREDICTORS = {
    ClassifierConfig: PredictorSpec(
        predict_labels.make_reader,
        predict_labels.LabelPredictor,
        make_blank=predict_labels.make_blank,
    ),
    TaggerConfig: PredictorSpec(
        predict_tags.make_reader,
        predict_tags.TagPredictor,
        predict_tags.format_tags,
        lambda config: {"tags": [], "entities": []},
    ),
    ChoiceConfig: PredictorSpec(
        predict_choices.make_reader, predict_choices.ChoicePredictor, predict_choices.format_choices
    ),
    SpanReaderConfig: PredictorSpec(
        predict_answers.make_reader,
        predict_answers.AnswerPredictor,
        predict_answers.format_answer,
        lambda config: dict(predict_answers.BLANK),
        ("n_best",),
    ),
    EmbedderConfig: PredictorSpec(
        predict_vectors.make_reader,
        predict_vectors.VectorPredictor,
        predict_vectors.format_vector,
        lambda config: {"vector": None},
    ),
}


def find_predictor(config: Any) -> PredictorSpec:
    """Return the functions for the head of a model's configuration."""
    return PREDICTORS[type(config)]
