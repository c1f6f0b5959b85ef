"""Encode texts of letters, such as proteins and DNA, by tables of bytes.

A token is the longest piece that begins at a letter, as `EsmTokenizer` cuts a text: a letter, or
several of them, which do not overlap (Nucleotide Transformer, Dalla-Torre et al. 2023). Overlapping
k-mers are all runs of k letters, one for each letter that begins one (DNABERT, Ji et al. 2021).
Blanks separate, and a run of letters that no piece has is one unknown token.

T characters of several texts, with a blank between two of them   N tokens
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, pre_tokenizers

from data.vocabulary.released import ReleasedVocabulary

BLANK, OTHER = -2, -1  # instead of the number of a letter
# Characters that separate, as the tokenizers library has them.
BLANKS = (
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
    *(0x2028, 0x2029, 0x202F, 0x205F, 0x3000),
)  # fmt: skip
MOST_SPELLINGS = 1 << 24  # of the letters of a length of pieces, for a table of all
BLOCK = 1 << 20  # characters that are walked at once


@dataclasses.dataclass(frozen=True)
class PieceTable:
    """The pieces of one length.

    Attributes:
      length: letters of a piece.
      digits_A: int64, the digit of each letter of the alphabet in a spelling; -1: no piece has it.
      base: number of digits.
      ids: int32 [base ** length], the id of each spelling; -1: it is no piece.
    """

    length: int
    digits_A: np.ndarray
    base: int
    ids: np.ndarray

    def find_ids(self, letters_T: np.ndarray) -> np.ndarray:
        """Return the id of the piece that begins at each character, int32 [T]; -1 for none.

        letters_T: int64, numbers of letters, or BLANK or OTHER.
        """
        found_T = np.full(len(letters_T), -1, np.int32)
        places = len(letters_T) - self.length + 1
        if places > 0:
            digits_T = np.append(self.digits_A, (-1, -1))[letters_T]  # -2 and -1: the last two
            spelling, is_spelled = np.zeros(places, np.int64), np.ones(places, bool)
            for i in range(self.length):
                spelling = spelling * self.base + digits_T[i : i + places]
                is_spelled &= digits_T[i : i + places] >= 0
            found_T[:places] = np.where(is_spelled, self.ids[np.where(is_spelled, spelling, 0)], -1)
        return found_T


class LetterVocabulary(ReleasedVocabulary):
    """A vocabulary of letters, or of several at once."""

    cuts_sentences = False

    def __init__(
        self,
        kind: str,
        ids: Mapping[str, int],
        encoder: tokenizers.Tokenizer,
        decoder: tokenizers.Tokenizer,
        overlap: int,
        **settings: Any,
    ) -> None:
        """Make the tables.

        Args:
          ids: of the pieces of letters.
          encoder, decoder, settings: as for `ReleasedVocabulary`.

        Raises:
          ValueError: more spellings of pieces are possible than a table may have.
        """
        self._letters = "".join(sorted({*"".join(ids)}))
        self._tables = [
            make_table(
                {piece: i for piece, i in ids.items() if len(piece) == length}, self._letters
            )
            for length in sorted({*map(len, ids)})
        ]
        super().__init__(kind, encoder, decoder, "whole", **settings)
        assert self.unk is not None  # `read_residues` refuses vocabularies without it
        self.overlap, self._unknown = overlap, np.int32(self.unk)

    @functools.cached_property
    def _number_of_byte(self) -> np.ndarray:
        """The number of the letter of each byte of ASCII, int64 [128]."""
        numbers = np.full(128, OTHER)
        numbers[[code for code in BLANKS if code < 128]] = BLANK
        for number, letter in enumerate(self._letters):
            if letter.isascii():
                numbers[ord(letter)] = number
        return numbers

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        ids_N, begin_N, _ = self._cut(" ".join(texts))
        edges = np.searchsorted(begin_N, _find_starts(list(map(len, texts))))
        return [part.tolist() for part in np.split(ids_N, edges)[1:]]

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[list[int], list[tuple[int, int]]]]:
        ids_N, begin_N, end_N = self._cut(" ".join(texts))
        starts = _find_starts(list(map(len, texts)))
        edges = [*np.searchsorted(begin_N, starts).tolist(), len(ids_N)]
        return [
            (
                ids_N[low:high].tolist(),
                [*zip((begin_N[low:high] - start).tolist(), (end_N[low:high] - start).tolist())],
            )
            for start, low, high in zip(starts.tolist(), edges, edges[1:])
        ]

    def encode_spans(
        self, text: bytes, starts: np.ndarray, ends: np.ndarray, first: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode the sentences text[starts[i]:ends[i]]; see the base class."""
        if not text.isascii():
            return super().encode_spans(text, starts, ends, first)
        spans = zip(starts.tolist(), ends.tolist())
        joined = b" ".join([text[start:end] for start, end in spans])
        ids_N, begin_N, _ = self._cut(joined)
        edges = np.searchsorted(begin_N, _find_starts((ends - starts).tolist()))
        return ids_N, np.diff(edges, append=len(ids_N)).astype(np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the letters of the ids; overlapping k-mers share the letters that fit."""
        if not self.overlap:
            return super().decode(ids)
        text = ""
        for piece in (self.pieces[int(i)] for i in ids):
            shared = piece[:-1]
            fits = len(piece) == self.overlap and shared and text.endswith(shared)
            text += piece[-1] if fits else f" {piece}" if text else piece
        return text

    def _cut(self, text: str | bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the tokens of a text: ids int32, and the characters where they begin and end."""
        letters_T = self._number_letters(text)
        found = [(table.length, table.find_ids(letters_T)) for table in self._tables]
        cut = self._cut_overlapping if self.overlap else self._cut_longest
        return cut(letters_T, found)

    def _number_letters(self, text: str | bytes) -> np.ndarray:
        """Return the number of the letter of each character, or BLANK or OTHER: int64 [T]."""
        if text.isascii():
            raw = text if isinstance(text, bytes) else text.encode()
            return self._number_of_byte[np.frombuffer(raw, np.uint8)]
        assert isinstance(text, str)  # bytes are ASCII here
        codes_T = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        known, inverse = np.unique(codes_T, return_inverse=True)
        numbers = [
            BLANK if code in BLANKS else self._letters.find(chr(code)) for code in known.tolist()
        ]
        return np.array(numbers, np.int64)[inverse]  # `find` returns OTHER

    def _cut_longest(
        self, letters_T: np.ndarray, found: list[tuple[int, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut a text into the longest pieces, from left to right, as `_cut` returns it."""
        ids_T, length_T = np.full(len(letters_T), -1, np.int32), np.ones(len(letters_T), int)
        for length, found_T in found:  # the longest is the last
            has_piece = found_T >= 0
            ids_T[has_piece], length_T[has_piece] = found_T[has_piece], length
        begin_N = np.arange(len(letters_T)) if found[-1][0] == 1 else _walk(length_T)
        begin_N = begin_N[letters_T[begin_N] != BLANK]
        ids_N = ids_T[begin_N]
        # A run of unknown characters is one token.
        other_N = ids_N < 0
        again_N = other_N & np.append(False, other_N)[:-1] & (np.diff(begin_N, prepend=-2) == 1)
        first = np.flatnonzero(~again_N)
        last = np.append(first[1:], len(begin_N))[: len(first)] - 1
        end_N = begin_N[last] + length_T[begin_N[last]]
        ids_N = np.where(other_N, self._unknown, ids_N)
        return ids_N[first], begin_N[first], end_N

    def _cut_overlapping(
        self, letters_T: np.ndarray, found: list[tuple[int, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut a text into all runs of k characters, as `_cut` returns it.

        A run with an unknown character is unknown, and so is a word of fewer than k.
        """
        (_, found_T), k = found[0], self.overlap
        is_blank = letters_T == BLANK
        stops = np.append(np.flatnonzero(is_blank), len(letters_T))
        place_T = np.arange(len(letters_T))
        room_T = stops[np.searchsorted(stops, place_T)] - place_T
        is_first = ~is_blank & np.append(True, is_blank)[: len(letters_T)]
        begin_N = np.flatnonzero((room_T >= k) | (is_first & (room_T > 0)))
        ids_N = np.where(found_T[begin_N] >= 0, found_T[begin_N], self._unknown)
        return ids_N, begin_N, begin_N + np.minimum(room_T[begin_N], k)


def make_table(ids: Mapping[str, int], letters: str) -> PieceTable:
    """Return the table of pieces of one length.

    Args:
      letters: of all pieces of the vocabulary.

    Raises:
      ValueError: more spellings are possible than a table may have.
    """
    length = len(next(iter(ids)))
    used = "".join(letter for letter in letters if any(letter in piece for piece in ids))
    if len(used) ** length > MOST_SPELLINGS:
        raise ValueError(
            f"vocab.txt: pieces of {length} of {len(used)} letters have more than "
            f"{MOST_SPELLINGS:,} spellings; pieces such as {next(iter(ids))[:60]!r} are too long"
        )
    table = np.full(len(used) ** length, -1, np.int32)
    for piece, i in ids.items():
        spelling = functools.reduce(
            lambda value, one: value * len(used) + used.index(one), piece, 0
        )
        table[spelling] = i
    digits_A = np.array([used.find(letter) for letter in letters], np.int64)
    return PieceTable(length, digits_A, len(used), table)


def _walk(length_T: np.ndarray) -> np.ndarray:
    """Return where tokens begin, if the next begins where one ends: int64."""
    parts, place = [], 0
    for begin in range(0, len(length_T), BLOCK):
        steps, here = length_T[begin : begin + BLOCK].tolist(), []
        place -= begin
        while place < len(steps):
            here.append(place)
            place += steps[place]
        parts.append(np.array(here, np.int64) + begin)
        place += begin
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _find_starts(lengths: Sequence[int]) -> np.ndarray:
    """Return the first character of each text, if a blank is between two: int64."""
    sizes = np.array(lengths, np.int64) + 1
    return np.cumsum(sizes) - sizes


def make_overlapping_cuts(length: int) -> Any:
    """Return the step of a `tokenizers.Tokenizer` that cuts words into all runs of so many letters.

    A tokenizer with it cannot be saved.
    """
    return pre_tokenizers.PreTokenizer.custom(OverlappingCuts(length))  # pyright: ignore


class OverlappingCuts:
    """Cuts words into runs of letters that overlap, for the tokenizers library."""

    def __init__(self, length: int) -> None:
        """Set the number of letters of a run."""
        self.length = length

    def pre_tokenize(self, text: Any) -> None:
        """Cut a `tokenizers.PreTokenizedString` in place."""
        text.split(lambda _, part: part.split(Regex(r"\s+"), "removed"))
        text.split(lambda _, word: self._cut_word(word))

    def _cut_word(self, word: Any) -> list[Any]:
        """Return the runs of a `tokenizers.NormalizedString`."""
        places = len(str(word)) - self.length + 1
        return [word[i : i + self.length] for i in range(places)] if places > 1 else [word]
