"""Apply the settings of a folder to its tokenizer: switches, added tokens, special tokens.

The result is the text of a tokenizer.json with the ids of `AutoTokenizer`.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from data.vocabulary.base import ROLE_PIECES, Vocabulary
from data.vocabulary.folder_settings import FLAGS, FolderSettings
from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.sentencepiece_proto import ModelProto, SentencePiece
from data.vocabulary.tokenizer_checks import iterate_steps, naming_library_errors

# Values of TOKENIZERS for a pipeline that folds case and accents, and for DeBERTa's.
FOLDED, COMPOSED = "folded_unigram", "nfc_unigram"
NORMALIZER = normalizers.BertNormalizer.__name__
UNIGRAM = 1  # TrainerSpec.ModelType
# {key of a step in tokenizer.json: the switch that sets it} by the type of the step.
SWITCHED = {
    NORMALIZER: {
        "lowercase": "do_lower_case",
        "strip_accents": "strip_accents",
        "handle_chinese_chars": "tokenize_chinese_chars",
    },
    "ByteLevel": {"add_prefix_space": "add_prefix_space"},
}
STEPS = {NORMALIZER: "normalizer", "ByteLevel": "pre_tokenizer"}
SWITCHED_TYPES = {"wordpiece": NORMALIZER, "byte_bpe": "ByteLevel"}


def is_expressed(tokens: Sequence[dict[str, Any]], plain: Vocabulary) -> bool:
    """Return whether a vocabulary without added tokens treats all these tokens as they demand.

    They are its special tokens, and their flags are those with which it is exported.
    """
    ids = {piece: i for i, piece in enumerate(plain.pieces)}
    exported = {plain.pad, plain.unk, plain.cls, plain.sep, plain.mask, plain.bos, plain.eos}
    exported |= set(plain.sentinels)
    for token in tokens:
        i = ids.get(token["content"])
        strips = plain.keeps_spaces and i == plain.mask
        if i is None or i not in exported or token["id"] not in (None, i):
            return False
        if not token["special"] or token["single_word"] or token["rstrip"]:
            return False
        if token["lstrip"] not in (None, strips):
            return False
        # Byte-level BPE has no normalizer.
        if token["normalized"] and not plain.keeps_spaces:
            return False
    return True


def has_roles(plain: Vocabulary, roles: dict[str, str]) -> bool:
    """Return whether the special tokens of a vocabulary are those that the settings name.

    GPT-2's settings name <|endoftext|> for all roles. Its bytes are never unknown, and its rows
    have no padding.
    """
    ends = {plain.bos, plain.eos}
    for role, piece in roles.items():
        i = plain.pieces.index(piece) if piece in plain.pieces else None
        if i != getattr(plain, role) and not (role in ("unk", "pad") and i in ends):
            return False
    return True


def apply_settings(text: str, settings: FolderSettings) -> str:
    """Return a tokenizer.json with the switches and the tokens of the settings.

    Args:
      text: the text of a tokenizer.json, which was checked.

    Raises:
      ValueError: if the settings contradict the file, or the id of a token is not the next one.
    """
    described = json.loads(text)
    before = json.dumps(described)
    if settings.tokenizer == FOLDED:
        _check_folding(described, settings.switches)
    if kind := SWITCHED_TYPES.get(settings.tokenizer):
        for step in iterate_steps(described.get(STEPS[kind])):
            if step.get("type") == kind:
                step |= {
                    key: settings.switches[switch]
                    for key, switch in SWITCHED[kind].items()
                    if switch in settings.switches
                    and (switch == "strip_accents" or settings.switches[switch] is not None)
                }
    listed = {token["content"]: token for token in described.get("added_tokens") or ()}
    if settings.replaces and settings.tokenizer:
        for token in settings.tokens:
            if token["content"] in listed:
                flags = {flag: token[flag] for flag in FLAGS if token[flag] is not None}
                listed[token["content"]] |= flags
    new = [token for token in settings.tokens if token["content"] not in listed]
    changed = json.dumps(described)
    text = text if changed == before else changed
    _check_listed(listed, settings.tokens)
    return add_tokens(text, new) if new else text


def add_tokens(text: str, tokens: Sequence[dict[str, Any]]) -> str:
    """Return a tokenizer.json with more added tokens, each of which has the next id.

    A token that is a piece keeps the id of the piece. Raises ValueError if a token names another.
    """
    with naming_library_errors("tokenizer.json"):
        tokenizer = tokenizers.Tokenizer.from_str(text)
        keeps_spaces = any(
            step.get("type") == "ByteLevel"
            for step in iterate_steps(json.loads(text).get("pre_tokenizer"))
        )
        added = []
        for token in tokens:
            # In byte-level BPE, the space before a masked word belongs to the mask.
            strips = keeps_spaces and token["content"] == "<mask>"
            flags = {flag: token[flag] for flag in FLAGS}
            flags["lstrip"] = strips if token["lstrip"] is None else token["lstrip"]
            added.append(tokenizers.AddedToken(token["content"], **flags))
        tokenizer.add_tokens(added)  # at once: each call takes time in proportion to all tokens
        found = {token["content"]: tokenizer.token_to_id(token["content"]) for token in tokens}
        result = tokenizer.to_str()
    for token in tokens:
        _check_token_id(token, found[token["content"]])
    return result


def _check_listed(listed: dict[str, dict[str, Any]], tokens: Sequence[dict[str, Any]]) -> None:
    """Raise ValueError if a token has another id in the settings than in tokenizer.json."""
    for token in tokens:
        if token["content"] in listed:
            _check_token_id(token, listed[token["content"]]["id"])


def _check_token_id(token: dict[str, Any], actual: int | None) -> None:
    if token["id"] not in (None, actual):
        raise ValueError(
            f"the added token {token['content'][:60]!r} has id {token['id']} in the settings, and "
            f"{actual} in the vocabulary: it must be the id of its piece, or follow the last "
            "piece; save the tokenizer's files again from one tokenizer"
        )


def _check_folding(described: dict[str, Any], switches: dict[str, bool | None]) -> None:
    """Raise ValueError if such a tokenizer.json normalizes otherwise than its switches say."""
    steps = {step.get("type") for step in iterate_steps(described.get("normalizer"))}
    for switch, actual in (
        ("do_lower_case", "Lowercase" in steps),
        ("keep_accents", "StripAccents" not in steps),
    ):
        if switches.get(switch) not in (None, actual):
            raise ValueError(
                f"tokenizer_config.json: {switch} is {switches[switch]}, and the normalizer in "
                "tokenizer.json contradicts it; save the tokenizer's files again from one tokenizer"
            )


def build_unigram(plain: SentencePieceVocabulary, settings: FolderSettings) -> str:
    """Return the tokenizer.json of a SentencePiece model in the pipeline of its class.

    The classes differ from SentencePiece: words are split at white space first, and ALBERT's
    replaces quotes, removes accents and folds case, unless its switches say otherwise. DeBERTa's
    composes letters (NFC), and does not read the model's own table of characters.

    Raises ValueError for a model that is not a unigram model.
    """
    parsed = ModelProto.FromString(plain.model_bytes)
    if parsed.trainer_spec.model_type != UNIGRAM:
        raise ValueError(
            "spiece.model is not a unigram model, and its settings add tokens or fold case: this "
            "needs a tokenizer.json; write one with save_pretrained of the tokenizer"
        )
    scores = [(piece.piece, piece.score) for piece in parsed.pieces]
    sentinels = plain.pieces[len(scores) :]
    kinds = [piece.type for piece in parsed.pieces]
    unknown = kinds.index(SentencePiece.UNKNOWN)
    tokenizer = tokenizers.Tokenizer(
        models.Unigram([*scores, *((name, 0.0) for name in sentinels)], unknown, False)
    )
    steps: list[Any] = []
    composes = settings.tokenizer == COMPOSED
    if composes:
        if settings.switches.get("do_lower_case"):
            steps.append(normalizers.Lowercase())
        steps += [
            normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "),
            normalizers.NFC(),
            normalizers.Strip(left=False, right=True),
        ]
    if settings.tokenizer == FOLDED:
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if not settings.switches.get("keep_accents"):
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.switches.get("do_lower_case") is not False:
            steps.append(normalizers.Lowercase())
    if parsed.normalizer_spec.precompiled_charsmap and not composes:
        with naming_library_errors("spiece.model"):
            steps.append(normalizers.Precompiled(parsed.normalizer_spec.precompiled_charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    never = settings.tokenizer == FOLDED and settings.switches.get("add_prefix_space") is False
    scheme = "never" if never else "always"
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    split = [] if composes else [pre_tokenizers.WhitespaceSplit()]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, metaspace])
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    defined = [
        piece.piece
        for piece, kind in zip(parsed.pieces, kinds)
        if kind == SentencePiece.USER_DEFINED
    ]
    tokenizer.add_tokens([tokenizers.AddedToken(piece, normalized=False) for piece in defined])
    return tokenizer.to_str()


def list_special_tokens(plain: Vocabulary, roles: Collection[str]) -> list[dict[str, Any]]:
    """Return the special tokens of a vocabulary, but for these roles, as added tokens."""
    found = [getattr(plain, role) for role in ROLE_PIECES if role not in roles]
    ids = dict.fromkeys(i for i in (*found, *plain.sentinels) if i is not None)
    flags = dict.fromkeys(FLAGS, False) | {"special": True, "lstrip": None}
    return [{"id": i, "content": plain.pieces[i], **flags} for i in ids]
