"""Texts as rows of pieces, each aligned with its word. Words are separated by white space."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pretrain.convert import find_model_type, tokenizer
from pretrain.inference.batching import quote_text
from pretrain.workdir.trained import Trained


class AlignedRow(NamedTuple):
    """A text as a model reads it.

    Attributes:
      spans: the characters [begin, end) of each piece in the text, without white space.
      words: the characters [begin, end) of each word.
      word_of: the number of each piece's word; -1 for special tokens.
      is_cut: whether the end of the text was dropped because the model has too few positions.
    """

    place: str
    text: str
    ids: list[int]
    spans: list[tuple[int, int]]
    words: list[tuple[int, int]]
    word_of: list[int]
    is_cut: bool


class WordAligner:
    """A tokenizer that returns an `AlignedRow` for each (place, text).

    Of a text that is longer than the model, it keeps the beginning, and the words that are read
    whole or in part.
    """

    def __init__(self, trained: Trained) -> None:
        model = trained.run.model
        self.family: str = find_model_type(model)
        self.max_length: int | None = model.length
        self.tokenizer = tokenizer.build_tokenizer(trained.vocabulary, self.family)
        if self.max_length is not None:
            self.tokenizer.enable_truncation(self.max_length)

    def __call__(self, texts: Sequence[tuple[str, str]]) -> list[AlignedRow]:
        """Return a row for each (place, text).

        Raises ValueError, which names the place, for a text without a piece.
        """
        encodings = self.tokenizer.encode_batch([text for _, text in texts])
        return [
            self._align_row(place, text, encoding)
            for (place, text), encoding in zip(texts, encodings)
        ]

    def _align_row(self, place: str, text: str, encoding: Any) -> AlignedRow:
        """Return the row of an encoding."""
        own = [not special for special in encoding.special_tokens_mask]
        if not any(own):
            raise ValueError(f"{place}: there is no word in {quote_text(text)}")
        words = [found.span() for found in re.finditer(r"\S+", text)]
        spans = [
            _trim_span(text, *span) if mine else (0, 0) for span, mine in zip(encoding.offsets, own)
        ]
        word_of, word = [], 0
        for (begin, _), mine in zip(spans, own):
            while mine and word + 1 < len(words) and begin >= words[word][1]:
                word += 1
            word_of.append(word if mine else -1)
        is_cut = bool(encoding.overflowing)
        read_words = words[: word + 1] if is_cut else words
        return AlignedRow(place, text, encoding.ids, spans, read_words, word_of, is_cut)


def _trim_span(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return a span without white space at its edges, which some tokenizers give to a piece.

    A span of white space alone becomes an empty one at its end.
    """
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end
