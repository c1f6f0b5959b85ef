"""Quote words for bash, so that a script shows every character of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def join_words(words: Iterable[str], one_line: bool = False) -> str:
    """Return words as a command of bash; with `one_line`, line breaks are escaped as well."""
    return " ".join(quote_word(word, one_line) for word in words)


def quote_word(word: str, one_line: bool = False) -> str:
    """Return a word as bash reads it back.

    A word with control characters, which a terminal would not show, is written by the bytes of
    those: $'\\302\\205'.
    """
    shown = word if one_line else word.replace("\n", "").replace("\t", "")
    return shlex.quote(word) if shown.isprintable() else f"$'{''.join(map(escape_letter, word))}'"


def escape_letter(letter: str) -> str:
    """Return a character for the inside of $'...'."""
    if letter in "\\'":
        return f"\\{letter}"
    is_shown = letter.isprintable()
    return letter if is_shown else "".join(f"\\{byte:03o}" for byte in letter.encode())
