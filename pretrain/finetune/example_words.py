"""The words of examples, which a model of characters reads whatever its pretraining has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pretrain.finetune.labelled_task import LabelledExamples
from pretrain.finetune.tagging_task import TaggedExamples

if TYPE_CHECKING:
    from pretrain.inference.trained import Trained


def open_to_examples(trained: Trained, gathered: Sequence[Any]) -> Trained:
    """Return a model with the vocabulary that reads the texts of examples: see `Trained.open_to`.

    Raises:
      ValueError: a model of characters, and examples that are neither labelled texts nor tagged
        words.
    """
    if not trained.run.model.characters:
        return trained
    if not all(isinstance(examples, LabelledExamples | TaggedExamples) for examples in gathered):
        raise ValueError(
            f"{trained.workdir} reads words by their characters: it learns labels of texts and "
            "tags of words, and no other task"
        )
    parts = [part for examples in gathered for part in examples.parts.values()]
    return trained.open_to(text for part in parts for example in part for text in example.texts)
