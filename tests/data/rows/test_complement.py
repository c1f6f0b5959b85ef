"""Complements of ids and texts are those of a dictionary of letters, read backwards."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from data.rows.complement import find_complements
from data.vocabulary.alphabets import make_alphabet, read_residues

BY_HAND = dict(zip("ACGTNRYSWKMBDHV", "TGCANYRSWMKVHDB", strict=True))
SPECIAL = ("<cls>", "<pad>", "<eos>", "<unk>")


def reverse_by_hand(text):
    reversed_ = ""
    for letter in text:
        other = BY_HAND[letter.upper()]
        reversed_ = (other if letter.isupper() else other.lower()) + reversed_
    return reversed_


def make_vocabulary(*pieces):
    """Return what `find_complements` reads of a vocabulary."""
    all_pieces = (*SPECIAL, *pieces, "<mask>")
    special = np.array([piece.startswith("<") for piece in all_pieces])
    return SimpleNamespace(size=len(all_pieces), pieces=all_pieces, special=special)


@pytest.mark.parametrize(
    "pieces",
    [
        "ACGTN",
        "".join(BY_HAND),
        "acgtnACGTN",
        ["".join(k) for k in itertools.product("ACGT", repeat=3)] + list("ACGTN"),
        ["ACGTTA", "TAACGT", "AT", "acG", "Cgt"],
    ],
)
def test_each_piece_has_the_id_of_its_reverse_complement(pieces):
    vocabulary = make_vocabulary(*pieces)
    ids_V = find_complements(vocabulary).ids_V
    for i, piece in enumerate(vocabulary.pieces):
        expected = piece if vocabulary.special[i] else reverse_by_hand(piece)
        assert vocabulary.pieces[ids_V[i]] == expected
    assert ids_V[ids_V].tolist() == [*range(vocabulary.size)]


def test_rna_pairs_a_with_u():
    complement = find_complements(read_residues("\n".join([*SPECIAL, *"ACGUN", "<mask>"])))
    assert complement.reverse_text("AACGun", "text 1") == "naCGUU"


def test_texts_are_reversed_and_blanks_stay():
    complement = find_complements(make_alphabet("nucleotides"))
    text = "ACCGT RYSWKM NBDHV acgtn"
    assert complement.reverse_text(text, "text 1") == " ".join(
        reverse_by_hand(word) for word in reversed(text.split())
    )
    with pytest.raises(
        ValueError, match=r"^text 4: 'E' has no complement; the letters of DNA are ABCDGHKMNRSTVWY$"
    ):
        complement.reverse_text("ACE", "text 4")


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (
            make_alphabet("esm2"),
            "the piece 'L' of the vocabulary has no complement; .*alphabet:nucleotides",
        ),
        (
            make_vocabulary(*"ACG"),
            "the piece 'A' of the vocabulary has no counterpart 'T'; .*vocab.txt",
        ),
        (
            make_vocabulary("ACG", "CGA"),
            "the piece 'ACG' of the vocabulary has no counterpart 'CGT'",
        ),
        (
            make_vocabulary("ACG", "cgt"),
            "the piece 'ACG' of the vocabulary has no counterpart 'CGT'",
        ),
        (make_vocabulary(*"ACGTU"), "has both T and U, so A has two complements"),
    ],
)
def test_vocabularies_without_complements_are_refused(vocabulary, message):
    with pytest.raises(ValueError, match=message):
        find_complements(vocabulary)
