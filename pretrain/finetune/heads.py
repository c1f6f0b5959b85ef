"""What `predict` does with each kind of head: which texts of a record it reads, what it answers, and how a person is told."""

from collections.abc import Callable
from typing import NamedTuple

from models.finetuned import ChoiceConfig, ClassifierConfig, SpanReaderConfig, TaggerConfig
from pretrain.finetune import answer, answers, choose, tags


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
    ClassifierConfig: Head(answer.reader, answer.Labels),
    TaggerConfig: Head(tags.reader, tags.Tags, tags.told),
    ChoiceConfig: Head(choose.reader, choose.Choices, choose.told),
    SpanReaderConfig: Head(answers.reader, answers.Answers, answers.told, ("n_best",)),
}


def head_of(config):
    return HEADS[type(config)]
