"""What `predict` does with each kind of head: which texts of a record it reads, what it answers, and how a person is told."""

from collections.abc import Callable
from typing import NamedTuple

from models.finetuned import ClassifierConfig
from pretrain.finetune import answer


class Head(NamedTuple):
    """reader: trained -> (record, place) -> the texts that the head reads, a tuple; answerer: (trained, batch size) -> (texts, places) -> [result]."""

    reader: Callable
    answerer: Callable


HEADS = {
    ClassifierConfig: Head(answer.reader, answer.Labels),
}


def head_of(config):
    return HEADS[type(config)]


def told(result):
    """A result as a line for a person."""
    return f"{result['probability']:7.2%}  {result['label']}" if "label" in result else f"{result['score']:7.3f}"
