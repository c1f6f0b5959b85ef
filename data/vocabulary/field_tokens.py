"""The tokens that begin and end each field of an article (Zellers et al. 2019, section 3.2).

The field `body` is written `<|beginbody|> ... <|endbody|>`. The two pieces are special tokens of
the vocabulary, so that no text of a field is encoded as one of them.
"""

import re
from typing import NamedTuple

from data.vocabulary.base import Vocabulary

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
    fields, ids = {}, {piece: i for i, piece in enumerate(vocabulary.pieces)}
    for begin, piece in enumerate(vocabulary.pieces):
        if piece.startswith("<|") and (match := BEGIN_PIECE.fullmatch(piece)):
            _, end = name_field_pieces(match[1])
            if end in ids:
                fields[match[1]] = FieldTokens(begin, ids[end])
    return fields
