"""Vocabularies of letters: amino acids and nucleotides, one token for each.

Special tokens and letters have the ids of the released models. A file of an alphabet is a
vocab.txt, a token a line, as `EsmTokenizer` of transformers reads and writes it.
"""

import re
from collections.abc import Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from data.vocabulary.layouts import ALPHABETS, BY_LETTER, UNKNOWN
from data.vocabulary.released import HIDDEN_MARK, ReleasedVocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json

KIND = "residues"
MOST_PIECES = 1_000
SPECIAL = re.compile(r"<[^<>]+>\Z")
ROLES = {"sep": "<eos>"}  # ends a row, and nothing else ends one


def make_alphabet(name: str) -> ReleasedVocabulary:
    """Return the vocabulary of an alphabet. Raises ValueError for a name that is none."""
    if name not in ALPHABETS:
        raise ValueError(f"alphabet {name!r}: one of {', '.join(ALPHABETS)}")
    return (build_letters if name in BY_LETTER else build_residues)(ALPHABETS[name])


def read_residues(vocab: str) -> ReleasedVocabulary:
    """Read the text of a vocab.txt with a token a line.

    Raises:
      ValueError: a token is empty, appears twice, or is neither a letter nor like <mask>; there is
        none for what is unknown; or there are too many.
    """
    pieces = [line.strip() for line in vocab.strip("\n").split("\n")]
    if len(pieces) > MOST_PIECES:
        raise ValueError(
            f"vocab.txt: {len(pieces):,} tokens; an alphabet has {MOST_PIECES:,} at most"
        )
    if len({*pieces}) != len(pieces):
        twice = next(piece for piece in pieces if pieces.count(piece) > 1)
        raise ValueError(f"vocab.txt: {twice[:60]!r} appears twice")
    for piece in pieces:
        if len(piece) != 1 and not SPECIAL.match(piece):
            raise ValueError(
                f"vocab.txt: {piece[:60]!r} is neither a letter nor a special token such as <mask>"
            )
    if UNKNOWN not in pieces:
        raise ValueError(f"vocab.txt: there is no {UNKNOWN}, which other letters become")
    return build_residues(pieces)


def build_residues(pieces: Sequence[str]) -> ReleasedVocabulary:
    """Return the vocabulary of pieces, whose ids are their places.

    A run of other characters is one `<unk>`, and blanks separate, as `EsmTokenizer` reads a text.
    """
    letters = [piece for piece in pieces if len(piece) == 1]
    special = [piece for piece in pieces if len(piece) > 1]
    steps = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Split(Regex("|".join(map(re.escape, letters))), "isolated"),
        ]
    )
    hidden = {piece: f"{HIDDEN_MARK}{i}" for i, piece in enumerate(special) if piece != UNKNOWN}
    found = []
    for names in (hidden, {}):
        ids = {names.get(piece, piece): i for i, piece in enumerate(pieces)}
        tokenizer = tokenizers.Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
        tokenizer.pre_tokenizer, tokenizer.decoder = steps, decoders.Fuse()
        found.append(tokenizer)
    encoder, decoder = found
    return ReleasedVocabulary(
        KIND,
        encoder,
        decoder,
        "whole",
        files={"vocab.txt": "\n".join(pieces).encode()},
        special_pieces=special,
        roles=ROLES,
    )


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
