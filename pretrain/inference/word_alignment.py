"""Texts as rows of pieces, each of which knows the word of the text that it belongs to. A word is what stands between white space.

B batch   L row length
"""

import re
from typing import NamedTuple

from pretrain.convert import name_of, tokenizer
from pretrain.inference.batching import cut


class Row(NamedTuple):
    """A text as a model reads it.

    place: "file:line" of the text, for errors. ids: with the special tokens that the model puts around a text. spans: the characters
    [begin, end) of the text that each piece stands for, without white space. words: the characters of each word. word_of: the number of
    each piece's word, -1 for special tokens. cut: whether the end of the text was left out, as the model has too few positions.
    """

    place: str
    text: str
    ids: list[int]
    pieces: list[str]
    spans: list[tuple[int, int]]
    words: list[tuple[int, int]]
    word_of: list[int]
    cut: bool


class Aligned:
    """Calling it with [(place, text)] gives a `Row` for each. Raises ValueError, which names the place, for a text without a piece.

    A text that is longer than the model keeps its beginning, and the words that are read whole or in part.
    """

    def __init__(self, trained):
        model = trained.run.model
        self.family, self.longest = name_of(model), getattr(model, "length", None)
        self.tokenizer = tokenizer.build(trained.vocabulary, self.family)
        if self.longest is not None:
            self.tokenizer.enable_truncation(self.longest)

    def __call__(self, texts):
        return [
            self._row(place, text, encoding)
            for (place, text), encoding in zip(
                texts, self.tokenizer.encode_batch([text for _, text in texts])
            )
        ]

    def _row(self, place, text, encoding):
        own = [not special for special in encoding.special_tokens_mask]
        if not any(own):
            raise ValueError(f"{place}: there is no word in {cut(text)}")
        words = [found.span() for found in re.finditer(r"\S+", text)]
        spans = [
            _trimmed(text, *span) if mine else (0, 0) for span, mine in zip(encoding.offsets, own)
        ]
        word_of, at = [], 0
        for (begin, _), mine in zip(spans, own):
            while mine and at + 1 < len(words) and begin >= words[at][1]:
                at += 1
            word_of.append(at if mine else -1)
        read = words[: at + 1] if encoding.overflowing else words
        return Row(
            place,
            text,
            encoding.ids,
            encoding.tokens,
            spans,
            read,
            word_of,
            bool(encoding.overflowing),
        )


def _trimmed(text, begin, end):
    """The span without the white space at its edges, which some tokenizers give to a piece; a piece of nothing else stands at its end."""
    while begin < end and text[begin].isspace():
        begin += 1
    while begin < end and text[end - 1].isspace():
        end -= 1
    return begin, end
