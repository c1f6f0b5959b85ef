"""Tell a user of `predict` that the vocabulary does not know much of the texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from data.examples.choice_questions import ChoiceQuestion
from data.store.unknown_tokens import describe_unknown
from data.vocabulary.base import Vocabulary


class UnknownCounter:
    """Counts the tokens of texts, and those that are unknown."""

    def __init__(self, vocabulary: Any) -> None:
        """Count with a vocabulary; nothing with another encoding, or one that knows all texts."""
        is_text = isinstance(vocabulary, Vocabulary) and vocabulary.unk is not None
        self.vocabulary = vocabulary if is_text else None
        self.tokens = self.unknown = 0

    def add_texts(self, texts: Iterable[Any]) -> None:
        """Count the tokens of what the reader of a model returned for some records."""
        if self.vocabulary is None or (unknown := self.vocabulary.unk) is None:
            return
        mask = self.vocabulary.mask
        gap = None if mask is None else self.vocabulary.pieces[mask]
        written = [text.replace(gap, " ") if gap else text for text in list_texts(tuple(texts))]
        for ids in self.vocabulary.encode_batch(written):
            self.tokens += len(ids)
            self.unknown += ids.count(unknown)

    def describe(self) -> list[str]:
        """Return a line for a share of unknown tokens that matters, or none."""
        return describe_unknown(self.unknown / max(self.tokens, 1), "the texts")


def list_texts(read: Any) -> list[str]:
    """Return the texts of what a reader returned: a text, several, or a question's texts."""
    if isinstance(read, str):
        return [read]
    if isinstance(read, ChoiceQuestion):
        return [*read.texts]
    return [text for part in read for text in list_texts(part)] if isinstance(read, tuple) else []
