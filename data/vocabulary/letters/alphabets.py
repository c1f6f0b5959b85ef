"""Vocabularies of letters: amino acids, nucleotides, k-mers of them, and the symbols of SMILES.

Special tokens and letters have the ids of the released models. A file of an alphabet is a
vocab.txt, a token a line, as `EsmTokenizer` of transformers reads and writes it, or `BertTokenizer`
for k-mers that overlap.
"""

import itertools
import re
from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from data.vocabulary.layouts import ALPHABETS, BY_LETTER, UNKNOWN
from data.vocabulary.letters.letter_vocabulary import LetterVocabulary
from data.vocabulary.letters.smiles import SMILES, build_smiles
from data.vocabulary.released import HIDDEN_MARK, ReleasedVocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json

KIND = "residues"
MOST_PIECES = 1 << 17
MOST_LETTERS = 8  # of a piece
SPECIAL = re.compile(r"<[^<>]+>\Z|\[[A-Z]+\]\Z")
UNKNOWN_PIECES = (UNKNOWN, "[UNK]")
ROLES = {"sep": "<eos>"}  # ends a row, and nothing else ends one
NUCLEOTIDES = "ATCG"  # in the order of the released k-mers
KMERS = re.compile(r"(overlapping_)?([2-8])mers")
# Dalla-Torre et al. 2023, version 2; its letters follow the k-mers, for what is left of a text.
APART = ("<unk>", "<pad>", "<mask>", "<cls>", "<eos>", "<bos>")
OVERLAPPING = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # Ji et al. 2021


def make_alphabet(name: str) -> ReleasedVocabulary:
    """Return the vocabulary of an alphabet. Raises ValueError for a name that is none."""
    if name == SMILES:
        return build_smiles()
    if match := KMERS.fullmatch(name):
        overlaps, length = bool(match[1]), int(match[2])
        kmers = map("".join, itertools.product(NUCLEOTIDES, repeat=length))
        if overlaps:
            return build_residues([*OVERLAPPING, *kmers], overlapping=True)
        return build_residues([*APART, *kmers, *NUCLEOTIDES, "N"])
    if name not in ALPHABETS:
        names = ", ".join((*ALPHABETS, SMILES))
        raise ValueError(
            f"alphabet {name!r}: one of {names}, or 2mers to 8mers, or overlapping_2mers to "
            "overlapping_8mers"
        )
    return (build_letters if name in BY_LETTER else build_residues)(ALPHABETS[name])


def read_residues(vocab: str, overlapping: bool | None = None) -> LetterVocabulary:
    """Read the text of a vocab.txt with a token a line.

    Args:
      overlapping: whether the pieces overlap in a text; None: if all k-mers of nucleotides are in
        it, and no letter.

    Raises:
      ValueError: a token is empty, appears twice, is neither of letters nor like <mask>; there is
        none for what is unknown; or there are too many.
    """
    pieces = [line.strip() for line in vocab.strip("\n").split("\n")]
    if len(pieces) > MOST_PIECES:
        raise ValueError(
            f"vocab.txt: {len(pieces):,} tokens; an alphabet has {MOST_PIECES:,} at most"
        )
    if len(known := {*pieces}) != len(pieces):
        twice = next(piece for piece in pieces if pieces.count(piece) > 1)
        raise ValueError(f"vocab.txt: {twice[:60]!r} appears twice")
    for piece in pieces:
        is_spelled = 0 < len(piece) <= MOST_LETTERS and not set(piece) & set("<>[]")
        if not (SPECIAL.match(piece) or (is_spelled and len(piece.split()) == 1)):
            raise ValueError(
                f"vocab.txt: {piece[:60]!r} is neither a letter, nor up to {MOST_LETTERS} of them, "
                "nor a special token such as <mask>"
            )
    if known.isdisjoint(UNKNOWN_PIECES):
        raise ValueError(f"vocab.txt: there is no {UNKNOWN}, which other letters become")
    is_found = overlapping is None and has_overlapping_kmers(pieces)
    vocabulary = build_residues(pieces, is_found or bool(overlapping))
    if is_found:
        vocabulary.reading_note = (
            f"vocab.txt: all k-mers of {vocabulary.overlap} nucleotides, so a token begins at each "
            "letter, as in DNABERT; read a text of k-mers with blanks between them, or of letters"
        )
    return vocabulary


def has_overlapping_kmers(pieces: Sequence[str]) -> bool:
    """Return whether pieces are all k-mers of nucleotides, but no letter, as DNABERT has them."""
    kmers = {piece for piece in pieces if not SPECIAL.match(piece)}
    length = len(next(iter(kmers), ""))
    return (
        length > 1
        and len(kmers) == len(NUCLEOTIDES) ** length
        and all(len(kmer) == length and set(kmer) <= set(NUCLEOTIDES) for kmer in kmers)
    )


def build_residues(pieces: Sequence[str], overlapping: bool = False) -> LetterVocabulary:
    """Return the vocabulary of pieces, whose ids are their places.

    Raises ValueError for special pieces alone, for pieces that overlap and are not all k-mers, or
    for too many spellings.
    """
    special = [piece for piece in pieces if SPECIAL.match(piece)]
    ids = {piece: i for i, piece in enumerate(pieces) if not SPECIAL.match(piece)}
    lengths = {*map(len, ids)}
    if not ids:
        raise ValueError("vocab.txt: there is no letter, only special tokens")
    if overlapping and not has_overlapping_kmers(pieces):
        raise ValueError(
            "vocab.txt: tokens overlap where they are all k-mers of nucleotides, and these are not"
        )
    unknown = next(piece for piece in UNKNOWN_PIECES if piece in special)
    cut = [pre_tokenizers.WhitespaceSplit()]
    if not overlapping:
        cut += [pre_tokenizers.Split(Regex(_write_pattern([*ids])), "isolated")]
    hidden = {piece: f"{HIDDEN_MARK}{i}" for i, piece in enumerate(special) if piece != unknown}
    found = []
    for names in (hidden, {}):
        named = {names.get(piece, piece): i for i, piece in enumerate(pieces)}
        tokenizer = tokenizers.Tokenizer(models.WordLevel(named, unk_token=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cut)
        tokenizer.decoder = decoders.Fuse()
        found.append(tokenizer)
    return LetterVocabulary(
        KIND,
        ids,
        *found,
        overlap=max(lengths) if overlapping else 0,
        files={"vocab.txt": "\n".join(pieces).encode()},
        special_pieces=special,
        roles=ROLES if ROLES["sep"] in special else {},
        options={"overlapping": overlapping} if has_overlapping_kmers(pieces) else {},
        encoder_parts="overlapping" if overlapping else None,
    )


def _write_pattern(pieces: Sequence[str]) -> str:
    """Return the regular expression that finds the longest piece."""
    groups = []
    for length in sorted({*map(len, pieces)}, reverse=True):
        group = [piece for piece in pieces if len(piece) == length]
        letters = sorted({*"".join(group)})
        if length > 1 and len(group) == len(letters) ** length:  # all of them
            group = [f"[{re.escape(''.join(letters))}]{{{length}}}"]
        else:
            group = map(re.escape, group)
        groups += group
    return "|".join(groups)


def build_letters(pieces: Sequence[str]) -> ReleasedVocabulary:
    """Return the vocabulary of pieces, whose ids are their places, as `EsmcTokenizer` reads a text.

    Each other character, a blank too, is one `<unk>`.
    """
    ids = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, [], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    special = [piece for piece in pieces if len(piece) > 1]
    tokenizer.add_special_tokens([AddedToken(piece, special=True) for piece in special])
    return read_tokenizer_json(tokenizer.to_str(), ROLES)
