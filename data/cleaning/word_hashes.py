"""Hashes of runs of words of many texts at once, the same for texts that differ in form alone.

Words are compared without case, accents and punctuation, and every number is one sign. A character
of a script without blanks, such as Chinese or Thai, is a word by itself.

Axes: B bytes, W words, S runs of words, D documents.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from data.vocabulary.word_boundaries import is_without_blanks

NON_ASCII = re.compile(r"[^\x00-\x7f]+")
NUMBER = re.compile(rb"00+")
BLANK, DIGIT = ord(" "), ord("0")
# Letters in lower case, digits as 0, everything else in ASCII as a blank; other bytes as they are.
TABLE = bytes(
    ord(chr(i).lower()) if chr(i).isalpha() else DIGIT if chr(i).isdigit() else BLANK
    for i in range(128)
) + bytes(range(128, 256))
FEW = 32  # different characters beyond ASCII that are replaced one by one
LONGEST_WORD = 1000  # bytes of a word that count
BLOCK_RUNS = 1 << 16  # runs of words that are hashed at once
BASE = 0x9E3779B97F4A7C15  # of the polynomial; odd, so that it has an inverse
MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of documents, joined, with one byte between two words.

    Attributes:
      text_B: uint8, the bytes of the words.
      starts_W, ends_W: int64, where each word begins and ends.
      first_D: int64 [D + 1], the first word of each document, and the number of words.
    """

    text_B: np.ndarray
    starts_W: np.ndarray
    ends_W: np.ndarray
    first_D: np.ndarray


def find_words(raws: Sequence[bytes]) -> Words:
    """Find the words of texts in UTF-8."""
    words = [_fold_text(raw).split() for raw in raws]
    text_B, ends_W = _join_words(words)
    if np.diff(ends_W, prepend=-1).max(initial=0) > LONGEST_WORD + 1:
        text_B, ends_W = _join_words([[word[:LONGEST_WORD] for word in some] for some in words])
    first_D = np.cumsum([0, *map(len, words)])
    return Words(text_B, np.concatenate([[0], ends_W + 1])[:-1], ends_W, first_D)


def _join_words(words: Sequence[Sequence[bytes]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the words of documents with a blank after each, and where these blanks are."""
    text_B = np.frombuffer(b"".join(b" ".join([*some, b""]) for some in words), np.uint8)
    return text_B, np.flatnonzero(text_B == BLANK)


def hash_runs(words: Words, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Hash each run of `size` words of each document; a shorter document is one run.

    Returns:
      uint64 [S], the hashes, and int64 [D + 1], the first run of each document and their number.
    """
    counts_D = np.diff(words.first_D)
    runs_D = np.maximum(counts_D - size + 1, 1)
    first_D = np.concatenate([[0], np.cumsum(runs_D)])
    begin_S = np.arange(first_D[-1]) + np.repeat(words.first_D[:-1] - first_D[:-1], runs_D)
    last_S = np.minimum(begin_S + size, np.repeat(words.first_D[1:], runs_D)) - 1
    hashes_S = np.zeros(len(begin_S), np.uint64)
    some_S = last_S >= begin_S  # a document may have no word
    for i in range(0, len(begin_S), BLOCK_RUNS):
        block = np.arange(i, min(i + BLOCK_RUNS, len(begin_S)))[some_S[i : i + BLOCK_RUNS]]
        if len(block):
            hashes_S[block] = _hash_spans(
                words.text_B, words.starts_W[begin_S[block]], words.ends_W[last_S[block]]
            )
    return hashes_S, first_D


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Return a permutation of 64-bit numbers in which each bit depends on all (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * MIXERS[0]
    values = (values ^ (values >> np.uint64(27))) * MIXERS[1]
    return values ^ (values >> np.uint64(31))


def _hash_spans(text_B: np.ndarray, starts_S: np.ndarray, ends_S: np.ndarray) -> np.ndarray:
    """Return polynomial hashes of ranges of a text, modulo 2^64, from sums of its beginnings."""
    low, high = int(starts_S.min()), int(ends_S.max())
    powers, inverses = _list_powers(1 << (high - low + 1).bit_length())
    sums = np.zeros(high - low + 1, np.uint64)
    np.cumsum(_list_codes()[text_B[low:high]] * powers[: high - low], out=sums[1:])
    return mix_bits((sums[ends_S - low] - sums[starts_S - low]) * inverses[starts_S - low])


@functools.lru_cache(maxsize=1)
def _list_powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the powers of the base and of its inverse."""
    bases = BASE, pow(BASE, -1, 1 << 64)
    steps = [np.full(size, base, np.uint64) for base in bases]
    for step in steps:
        step[0] = 1
    powers, inverses = (np.multiply.accumulate(step) for step in steps)
    return powers, inverses


@functools.cache
def _list_codes() -> np.ndarray:
    """Return a number of 64 bits for each byte."""
    return mix_bits(np.arange(1, 257, dtype=np.uint64) * np.uint64(BASE))


def _fold_text(raw: bytes) -> bytes:
    """Return a text with a blank for all that is no word, and other letters in their plain form."""
    if not raw.isascii():
        text = raw.decode()
        others = [character for character in set(text) if not character.isascii()]
        if len(others) > FEW:
            raw = NON_ASCII.sub(lambda run: run[0].translate(_FOLDED), text).encode()
        else:  # the same, and faster
            for character in others:
                raw = raw.replace(character.encode(), _FOLDED[ord(character)].encode())
    raw = raw.translate(TABLE)
    return NUMBER.sub(b"0", raw) if b"00" in raw else raw


class _FoldedCharacters(dict):
    """{code point: its form in a word}, which is computed where a text has the character."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _fold_character(chr(code))
        return folded


_FOLDED = _FoldedCharacters()


def _fold_character(character: str) -> str:
    """Return a character without case and accents; a blank for one that is in no word."""
    for _ in range(2):  # folding case can give accents
        character = unicodedata.normalize("NFKD", character).casefold()
    parts = []
    for part in unicodedata.normalize("NFKD", character):
        kind = unicodedata.category(part)
        if kind[0] == "M":
            continue
        sign = part if kind[0] in "LN" else " "
        parts.append("0" if kind == "Nd" else f" {sign} " if is_without_blanks(part) else sign)
    return "".join(parts)
