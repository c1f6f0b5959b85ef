"""The tokens that begin and end each field of an article (Zellers et al. 2019, section 3.2).

The field `body` is written `<|beginbody|> ... <|endbody|>`. The two pieces are special tokens of
the vocabulary, so that no text of a field is encoded as one of them.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from data.vocabulary.added_tokens import add_tokens, list_special_tokens
from data.vocabulary.base import ROLE_PIECES, Vocabulary
from data.vocabulary.folder_settings import FLAGS
from data.vocabulary.layouts import BYTE_BPE_LAYOUTS
from data.vocabulary.released import ReleasedVocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json

BEGIN_PIECE = re.compile(r"<\|begin(\w+)\|>")


class FieldTokens(NamedTuple):
    """The ids of the tokens that begin and end a field."""

    begin: int
    end: int


def name_field_pieces(field: str) -> tuple[str, str]:
    """Return the pieces that begin and end a field."""
    return f"<|begin{field}|>", f"<|end{field}|>"


def find_fields(vocabulary: Vocabulary) -> dict[str, FieldTokens]:
    """Return {field: its tokens} of a vocabulary, in the order of the ids; {} if it has none."""
    fields = {}
    for begin, piece in enumerate(vocabulary.pieces):
        if piece.startswith("<|") and (match := BEGIN_PIECE.fullmatch(piece)):
            _, end = name_field_pieces(match[1])
            if end in vocabulary.pieces:
                fields[match[1]] = FieldTokens(begin, vocabulary.pieces.index(end))
    return fields


def add_field_tokens(vocabulary: Vocabulary, fields: Sequence[str]) -> Vocabulary:
    """Return a vocabulary with the tokens of these fields behind its other ids.

    A vocabulary whose fields are these, in this order, is returned unchanged.

    Raises ValueError for a vocabulary with other fields, or one that takes no tokens.
    """
    if (found := find_fields(vocabulary)) and tuple(found) != tuple(fields):
        raise ValueError(
            f"the vocabulary has the fields {', '.join(found)}, --field names {', '.join(fields)}: "
            "name the same ones in the same order, or take another vocabulary"
        )
    if found:
        return vocabulary
    if not isinstance(vocabulary, ReleasedVocabulary):
        raise ValueError(
            f"the tokens of fields cannot be added to a {vocabulary.kind} vocabulary: take one of "
            f"bytes (--layout {' or '.join(BYTE_BPE_LAYOUTS)}), or a released vocab.json, "
            "vocab.txt or tokenizer.json"
        )
    flags = dict.fromkeys(FLAGS, False) | {"special": True}
    tokens = [
        {"id": None, "content": piece, **flags}
        for field in fields
        for piece in name_field_pieces(field)
    ]
    roles = {
        role: vocabulary.pieces[i]
        for role in ROLE_PIECES
        if (i := getattr(vocabulary, role)) is not None
    }
    text = add_tokens(vocabulary.to_json(), [*list_special_tokens(vocabulary, ()), *tokens])
    return read_tokenizer_json(text, roles)
