"""A vocabulary with the tokens of the fields of articles."""

from collections.abc import Sequence

from data.vocabulary.added_tokens import add_tokens, list_special_tokens
from data.vocabulary.base import ROLE_PIECES, Vocabulary
from data.vocabulary.field_tokens import find_fields, name_field_pieces
from data.vocabulary.folder_settings import FLAGS
from data.vocabulary.layouts import BYTE_BPE_LAYOUTS
from data.vocabulary.released import ReleasedVocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json


def add_field_tokens(vocabulary: Vocabulary, fields: Sequence[str]) -> Vocabulary:
    """Return a vocabulary with the tokens of these fields after its other ids.

    A vocabulary whose fields are these, in this order, is returned unchanged.

    Raises ValueError for a vocabulary with other fields, with one of these tokens, such as
    <|endoftext|> for a field `oftext`, or one that takes no tokens.
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
    for field in fields:
        if taken := [piece for piece in name_field_pieces(field) if piece in vocabulary.pieces]:
            raise ValueError(
                f"--field {field}: its tokens would be {' and '.join(name_field_pieces(field))}, "
                f"and the vocabulary has {taken[0]} for something else: rename the field"
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
