"""Read vocabularies in a tokenizer.json, which the `tokenizers` library writes.

The encoder has no special tokens, so "[MASK]" in a text is plain text. Other added tokens remain.
"""

import json
from typing import Any

import tokenizers

from data.corpus.untrusted import MAX_VOCABULARY_VALUES, parse_bounded_json
from data.vocabulary.released import HIDDEN_MARK, ReleasedVocabulary
from data.vocabulary.tokenizer_checks import check_tokenizer, naming_library_errors

SWITCHES = {"use_regex": True, "split": True}  # the defaults that are not False


def read_tokenizer_json(text: str, roles: dict[str, str] | None = None) -> ReleasedVocabulary:
    """Read a vocabulary from the text of a tokenizer.json.

    Args:
      roles: {role: special token} of the settings in the same folder.

    Raises:
      ValueError: if the tokenizers library cannot read it.
    """
    settings = parse_bounded_json(text, "tokenizer.json", MAX_VOCABULARY_VALUES)
    try:
        check_tokenizer(settings)
    except ValueError as error:
        raise ValueError(f"tokenizer.json: {error}") from None
    tokens = settings.get("added_tokens") or ()
    added = [token["content"] for token in tokens if token["special"]]
    with naming_library_errors("tokenizer.json"):
        decoder = tokenizers.Tokenizer.from_str(text)
        hidden = json.dumps(_hide_special_pieces(settings, set(added)))
        encoder = tokenizers.Tokenizer.from_str(hidden)
    return ReleasedVocabulary(
        "tokenizer_json",
        encoder,
        decoder,
        _detect_style(settings),
        files={"tokenizer.json": text.encode()},
        special_pieces=frozenset(added),
        roles=roles,
        options={"roles": roles or {}},
        encoder_parts=_describe_encoder(settings),
    )


def _describe_encoder(settings: dict[str, Any]) -> list[Any]:
    """Return the settings that decide the ids of a text and the text of ids, in a canonical form.

    Versions of the library differ in how they write a merge, a text or a list of two, and in which
    values that mean nothing, or are the default, they write.
    """
    model = dict(settings["model"])
    pieces, merges = model.pop("vocab", None), model.pop("merges", None) or []
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    steps = [settings.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")]
    # Special tokens are hidden from the encoder, and the fingerprint has them.
    added = [token for token in settings.get("added_tokens") or () if not token["special"]]
    parts = _drop_defaults([model, added, *steps])
    return [json.dumps([pieces, merges, parts], sort_keys=True)]


def _drop_defaults(value: Any) -> Any:
    """Return a part of a tokenizer.json without what is absent or "", and without defaults."""
    if isinstance(value, list):
        return [_drop_defaults(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "Metaspace":  # older versions have two keys for the one of today
        value = {key: item for key, item in value.items() if key != "str_rep"}
        adds_space = value.pop("add_prefix_space", None)
        value.setdefault("prepend_scheme", "always" if adds_space else "never")
    return {
        key: _drop_defaults(item)
        for key, item in value.items()
        if item not in (None, "") and item is not SWITCHES.get(key, False)
    }


def _hide_special_pieces(settings: dict[str, Any], special: set[str]) -> dict[str, Any]:
    """Return the settings with special tokens renamed to strings that no encoded text contains.

    The ids and the unknown piece stay.
    """
    model = settings["model"]
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    names = {piece: f"{HIDDEN_MARK}{i}" for i, piece in enumerate(sorted(special - {unknown}))}
    added = [
        token | {"content": names.get(token["content"], token["content"])}
        for token in settings.get("added_tokens") or ()
    ]
    added = [token for token in added if token["content"] != unknown]
    if isinstance(model["vocab"], dict):
        vocab = {names.get(piece, piece): i for piece, i in model["vocab"].items()}
    else:
        vocab = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    changed = {"model": model | {"vocab": vocab}, "added_tokens": added, "post_processor": None}
    return settings | changed | {"truncation": None, "padding": None}


def _detect_style(settings: dict[str, Any]) -> str:
    """Return how the pieces of a tokenizer.json mark the beginning of a word."""
    steps = json.dumps(
        [settings.get(key) for key in ("pre_tokenizer", "normalizer", "decoder")],
        ensure_ascii=False,
    )
    if settings["model"]["type"] == "WordPiece":
        return "wordpiece"
    if '"ByteLevel"' in steps:
        return "byte"
    return "space" if '"Metaspace"' in steps or "▁" in steps else "whole"
