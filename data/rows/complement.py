"""The complement of ids and texts of DNA: what the other strand has, read in its own direction.

A pairs with T (in RNA with U), C with G. IUPAC's letters for several bases pair likewise: R, which
is A or G, with Y, which is C or T.

V ids of the vocabulary
"""

from typing import NamedTuple

import numpy as np

from data.vocabulary.base import Vocabulary

PAIRS = ("CG", "NN", "RY", "KM", "BV", "DH", "SS", "WW")  # of DNA and RNA alike


class Complement(NamedTuple):
    """The complements of a vocabulary.

    Attributes:
      ids_V: the id of each id's reverse complement, int32 [V]; special ids have their own.
      letters: {letter: its complement}.
    """

    ids_V: np.ndarray
    letters: dict[str, str]

    def reverse_text(self, text: str, place: str) -> str:
        """Return the reverse complement of a text, whose blanks stay blanks.

        Raises ValueError, which begins with the place, for a letter without a complement.
        """
        for letter in text:
            if letter not in self.letters and not letter.isspace():
                raise ValueError(
                    f"{place}: {letter!r} has no complement; the letters of DNA are "
                    f"{''.join(sorted(filter(str.isupper, self.letters)))}"
                )
        return "".join(self.letters.get(letter, letter) for letter in reversed(text))


def find_complements(vocabulary: Vocabulary) -> Complement:
    """Return the complements of a vocabulary's ids and letters.

    A piece such as ACGTTA has the id of TAACGT.

    Raises:
      ValueError: a piece has other letters than DNA, its reverse complement is no piece, or there
        are pieces with T and with U.
    """
    ids = {vocabulary.pieces[i]: i for i in np.flatnonzero(~vocabulary.special).tolist()}
    remedy = (
        "strands are for DNA or RNA: prepare a store with --vocabulary alphabet:nucleotides, or "
        "with a vocab.txt that has the reverse complement of each piece"
    )
    used = {letter for piece in ids for letter in piece.upper()}
    letters = pair_letters("U" if "U" in used else "T")
    for piece in ids:
        if not piece or not letters.keys() | {*"Tt"} >= {*piece}:
            raise ValueError(f"the piece {piece!r} of the vocabulary has no complement; {remedy}")
    if {"T", "U"} <= used:
        raise ValueError(f"the vocabulary has both T and U, so A has two complements; {remedy}")
    ids_V = np.arange(vocabulary.size, dtype=np.int32)
    for piece, i in ids.items():
        other = "".join(letters[letter] for letter in reversed(piece))
        if other not in ids:
            raise ValueError(
                f"the piece {piece!r} of the vocabulary has no counterpart {other!r}; {remedy}"
            )
        ids_V[i] = ids[other]
    return Complement(ids_V, letters)


def pair_letters(partner: str) -> dict[str, str]:
    """Return {letter: its complement}, capitals and small letters.

    partner: of A, T in DNA and U in RNA.
    """
    pairs = (f"A{partner}", *PAIRS)
    upper = {one: other for a, b in pairs for one, other in ((a, b), (b, a))}
    return upper | {one.lower(): other.lower() for one, other in upper.items()}
