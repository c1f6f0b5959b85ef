"""Filters that look at one document: fields, length, share of letters; and the Unicode form."""

import functools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from data.cleaning.settings import CleaningSettings
from data.corpus.sentences import WHITESPACE

NO_LETTERS = bytes(i for i in range(128) if not chr(i).isalpha())
BLANKS = bytes(i for i in range(128) if chr(i).isspace())
BLANK, LETTER = 1, 2


class DocumentFilter:
    """Says of one document whether it is dropped, and gives it its Unicode form."""

    def __init__(self, settings: CleaningSettings) -> None:
        self.settings, self.conditions = settings, settings.list_conditions()
        self._fields = settings.list_fields()
        self._after_conditions = len(self.conditions)

    def normalize_text(self, raw: bytes) -> bytes:
        """Return a text in UTF-8 in the Unicode form of the settings."""
        form: Any = self.settings.normalize
        if form is None or raw.isascii():
            return raw
        return unicodedata.normalize(form, raw.decode()).encode().strip(WHITESPACE)

    def find_reason(self, raw: bytes, values: Sequence[str | None]) -> int | None:
        """Return the number of the reason to drop a document, None to keep it.

        values: the text of each field of `list_fields`, None where a record lacks it.
        """
        settings, number = self.settings, self._after_conditions
        if self.conditions:
            found = dict(zip(self._fields, values, strict=True))
            for i, condition in enumerate(self.conditions):
                if condition.drops_value(found[condition.field]):
                    return i
        least, most = settings.min_characters, settings.max_characters
        if least is not None:
            # A character has at most four bytes, so long texts are not counted.
            if len(raw) < 4 * least and count_characters(raw) < least:
                return number
            number += 1
        if most is not None:
            if len(raw) > most and count_characters(raw) > most:
                return number
            number += 1
        if settings.min_letters is not None and measure_letters(raw) < settings.min_letters:
            return number
        return None


def count_characters(raw: bytes) -> int:
    """Return the number of characters of a text in UTF-8."""
    return len(raw) if raw.isascii() else len(raw.decode())


def measure_letters(raw: bytes) -> float:
    """Return the share of letters, with their marks, among the characters that are no blanks."""
    if raw.isascii():
        letters = len(raw.translate(None, NO_LETTERS))
        return letters / max(len(raw.translate(None, BLANKS)), 1)
    kinds = _list_kinds()[np.frombuffer(raw.decode().encode("utf-32-le"), "<u4")]
    return int((kinds == LETTER).sum()) / max(int((kinds != BLANK).sum()), 1)


@functools.cache
def _list_kinds() -> np.ndarray:
    """Return for each code point whether it is a blank, a letter or a letter's mark, or else 0."""
    kinds = np.zeros(0x110000, np.uint8)
    for code in range(0x110000):
        character = chr(code)
        if character.isspace():
            kinds[code] = BLANK
        elif unicodedata.category(character)[0] in "LM":
            kinds[code] = LETTER
    return kinds
