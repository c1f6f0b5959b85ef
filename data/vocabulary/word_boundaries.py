"""Where words begin and end in scripts that are written without blanks.

A piece of SentencePiece or byte-level BPE shows the blank before a word, and a WordPiece shows that
it continues one. Chinese, Japanese, Thai and their like have no blanks, so by these marks a whole
text is one word. Here each piece of such a script is a word by itself: an ideograph or kana, as in
Devlin et al.'s tokenizer, or the letters that the vocabulary joined.

N ids of a vocabulary
"""

import bisect
import functools
from collections.abc import Sequence

import numpy as np

# Blocks of Unicode, [first, last], ascending.
WITHOUT_BLANKS = (
    (0x0E00, 0x0FFF),  # Thai, Lao, Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1980, 0x1AAF),  # New Tai Lue, Khmer symbols, Buginese, Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # iteration mark, closing mark, zero
    (0x3021, 0x303B),
    (0x3041, 0x312F),  # kana, Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),  # ideographs
    (0x4E00, 0x9FFF),
    (0xA980, 0xA9DF),  # Javanese
    (0xA9E0, 0xA9FF),  # Myanmar
    (0xAA60, 0xAADF),  # Myanmar, Tai Viet
    (0xF900, 0xFAFF),  # ideographs
    (0xFF66, 0xFF9F),  # kana of half width
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFD),  # ideographs
)
FIRST, LAST = zip(*WITHOUT_BLANKS, strict=True)
# First bytes of three in UTF-8 whose characters are ideographs, whatever follows.
IDEOGRAPH_BYTES = range(0xE4, 0xEA)
MARKS = "▁"  # SentencePiece's blank


def is_without_blanks(character: str) -> bool:
    """Return whether a character is of a script that is written without blanks."""
    code = ord(character)
    block = bisect.bisect_right(FIRST, code) - 1
    return block >= 0 and code <= LAST[block]


def find_script_boundaries(
    pieces: Sequence[str], special_N: np.ndarray, is_bytes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return which pieces begin a word by their script, and after which a word begins: bool [N].

    Part of a character is recognized where its first byte belongs to ideographs alone.

    Args:
      special_N: whether each is special, and so has no script.
      is_bytes: whether they are of byte-level BPE, each of whose characters is a byte.
    """
    begins_N, ends_N = np.zeros((2, len(pieces)), bool)
    for i in np.flatnonzero(~special_N).tolist():
        text, lead = read_piece(pieces[i], is_bytes)
        if lead is not None:
            begins_N[i] = lead in IDEOGRAPH_BYTES
        elif text:
            begins_N[i], ends_N[i] = is_without_blanks(text[0]), is_without_blanks(text[-1])
    return begins_N, ends_N


def read_piece(piece: str, is_bytes: bool) -> tuple[str, int | None]:
    """Return (the text of a piece, None), or ("", its first byte) if it is part of a character."""
    if is_bytes:
        data = bytes(_map_bytes()[character] for character in piece if character in _map_bytes())
        try:
            return data.decode().lstrip(), None
        except UnicodeDecodeError:
            return "", data[0]
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):  # byte fallback
        try:
            return "", int(piece[3:5], 16)
        except ValueError:
            return piece, None
    return piece.lstrip(MARKS).removeprefix("##"), None


@functools.cache
def _map_bytes() -> dict[str, int]:
    """Return {character: byte} of byte-level BPE (Radford et al. 2019).

    Printable bytes are their own character; the others are numbered from 256 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + i): byte for i, byte in enumerate(others)
    }
