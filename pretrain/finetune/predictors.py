"""What `predict` does with each kind of head: which texts of a record it reads, what it answers, and how a person is told."""

from collections.abc import Callable
from typing import NamedTuple

from models.config.heads import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.finetune import predict_answers, predict_choices, predict_labels, predict_tags


def told(texts, result):
    """The texts and a result as lines for a person."""
    line = (
        f"{result['probability']:7.2%}  {result['label']}"
        if "label" in result
        else f"{result['score']:7.3f}"
    )
    return "\n".join([*texts, f"    {line}"])


class Head(NamedTuple):
    """reader: trained -> (record, place) -> the texts that the head reads, a tuple; answerer: (trained, batch size) -> (texts, places) -> [result].

    told: (texts, result) -> lines for a person. options: further keywords that the answerer takes, options of `predict`.
    """

    reader: Callable
    answerer: Callable
    told: Callable = told
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


def head_of(config):
    return HEADS[type(config)]
