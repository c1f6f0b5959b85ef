"""What `predict` does with each kind of head: it reads texts, predicts and formats the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.finetune import predict_answers, predict_choices, predict_labels, predict_tags


def told(texts: Sequence[str], result: dict[str, Any]) -> str:
    """Return texts with their label or score, formatted for the terminal."""
    line = (
        f"{result['probability']:7.2%}  {result['label']}"
        if "label" in result
        else f"{result['score']:7.3f}"
    )
    return "\n".join([*texts, f"    {line}"])


class Head(NamedTuple):
    """The functions by which `predict` uses a head.

    Attributes:
      reader: (trained) -> a function (record, place) -> the texts that the head reads, a tuple.
      answerer: (trained, batch size) -> a function (texts, places) -> the result of each.
      told: (texts, result) -> text for the terminal.
      options: names of further keyword arguments of `answerer`, which are options of `predict`.
    """

    reader: Callable[..., Any]
    answerer: Callable[..., Any]
    told: Callable[[Any, dict[str, Any]], str] = told
    options: tuple[str, ...] = ()


HEADS = {
    ClassifierConfig: Head(predict_labels.reader, predict_labels.Labels),
    TaggerConfig: Head(predict_tags.reader, predict_tags.Tags, predict_tags.told),
    ChoiceConfig: Head(
        predict_choices.reader, predict_choices.ChoicePredictor, predict_choices.told
    ),
    SpanReaderConfig: Head(
        predict_answers.reader, predict_answers.AnswerPredictor, predict_answers.told, ("n_best",)
    ),
}


def head_of(config: Any) -> Head:
    """Return the functions for the head of a model's configuration."""
    return HEADS[type(config)]
