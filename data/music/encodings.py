"""Encodings: how a piece is a sequence of tokens, and a sequence of tokens a piece.

name     tokens
voices   four voices on a grid of sixteenths: of each sixteenth one token a voice, which is a pitch
         that begins, `hold` or `rest` (the chorales of Huang et al. 2018, section 4.1)
events   a performance: notes on and off, steps of 10 ms and 32 velocities (Oore et al. 2018,
         section 4; the performances of Huang et al. 2018, section 4.2)

A token has a name without blanks, so that tokens separated by blanks are a text, and the vocabulary
is one of words.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from data.music import performances, voices
from data.music.notes import Piece, Unit
from data.vocabulary.base import Vocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json


class MusicEncoding(NamedTuple):
    """An encoding.

    unit: the unit of the times that it reads and writes.
    tokens: the names of its tokens. The first two are the end of a piece and the unknown word.
    pitch_blocks: the first id of each block of 128 ids of pitches, which is transposed.
    opening: the ids before the first of a piece, with which a composition begins.
    encode: (piece) -> ids, int32 [n]. Raises ValueError for a piece that it cannot express.
    decode: (ids, name) -> a piece.
    """

    name: str
    unit: Unit
    tokens: tuple[str, ...]
    pitch_blocks: tuple[int, ...]
    opening: tuple[int, ...]
    encode: Callable[[Piece], np.ndarray]
    decode: Callable[[Sequence[int], str], Piece]


ENCODINGS = {
    encoding.name: encoding
    for encoding in (
        MusicEncoding(
            "voices",
            "quarters",
            voices.TOKENS,
            (voices.FIRST_PITCH,),
            (*voices.FINAL_RESTS.tolist(), 0),
            voices.encode_piece,
            voices.decode_ids,
        ),
        MusicEncoding(
            "events",
            "seconds",
            performances.TOKENS,
            (performances.FIRST_ON, performances.FIRST_OFF),
            (0,),
            performances.encode_piece,
            performances.decode_ids,
        ),
    )
}


@cache
def make_vocabulary(name: str) -> Vocabulary:
    """Return the vocabulary of an encoding."""
    tokens = ENCODINGS[name].tokens
    special = [
        {
            "id": i,
            "content": tokens[i],
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for i in (0, 1)
    ]
    settings = {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "unk_token": tokens[1],
        },
    }
    return read_tokenizer_json(json.dumps(settings))


def find_encoding(vocabulary: Vocabulary) -> MusicEncoding:
    """Return the encoding of a vocabulary. Raises ValueError if it is not one of music."""
    for name in ENCODINGS:
        if make_vocabulary(name).fingerprint == vocabulary.fingerprint:
            return ENCODINGS[name]
    raise ValueError(
        f"a {vocabulary.kind} vocabulary of {vocabulary.size} tokens is not one of music "
        f"({', '.join(ENCODINGS)})"
    )
