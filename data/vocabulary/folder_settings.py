"""Read the settings that `transformers` writes next to a vocabulary.

tokenizer_config.json     the tokenizer's class, its switches, its special tokens, and as
                          `added_tokens_decoder` the tokens that are added to the vocabulary
special_tokens_map.json   the special tokens
added_tokens.json         {added token: id}; read without `added_tokens_decoder`
config.json               the model's type, which implies the tokenizer's class if none is named

All of them come from others, so each value is checked.
"""

import pathlib
from typing import Any, NamedTuple

from data.corpus.untrusted import read_bounded_json
from data.vocabulary.base import MAX_SENTINELS, ROLE_PIECES
from data.vocabulary.layouts import MODEL_TOKENIZERS, TOKENIZERS
from data.vocabulary.tokenizer_checks import check_added_count, check_id

TOKENIZER_CONFIG, SPECIAL_TOKENS, ADDED_TOKENS, MODEL_CONFIG = SETTINGS_FILES = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
)
# Settings that are true, false or null.
SWITCHES = (
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
    "add_prefix_space",
    "keep_accents",
)
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token
MAX_TOKEN = 1000  # characters of an added token
DECODER = "added_tokens_decoder"
# {name of a special token: the vocabulary's own, or null}: what an export replaced for
# `transformers`, where training used another one.
STAND_INS = "stand_ins"
EXTRA_KEYS = ("additional_special_tokens", "extra_special_tokens")


class FolderSettings(NamedTuple):
    """The settings of a folder.

    Attributes:
      tokenizer: a value of TOKENIZERS: what the tokenizer's class reads; "" without a class.
      unknown_class: the name of a class that is not in TOKENIZERS, or "".
      switches: {name: value} of the SWITCHES that the files name.
      sentinels: `extra_ids`, the number of T5's sentinels; None if it is not named.
      roles: {role: special token}.
      tokens: the added and special tokens, as in the `added_tokens` of a tokenizer.json, in the
        order in which they are added. The id is None where the files do not give it.
      replaces: whether the flags of `tokens` precede those in tokenizer.json.
    """

    tokenizer: str = ""
    unknown_class: str = ""
    switches: dict[str, bool | None] = {}
    sentinels: int | None = None
    roles: dict[str, str] = {}
    tokens: tuple[dict[str, Any], ...] = ()
    replaces: bool = False


def read_folder_settings(folder: pathlib.Path) -> FolderSettings:
    """Return the settings of a folder, in which each of the files may be absent.

    Raises ValueError, which names the file, the key and the value, if a value is not valid.
    """
    config, special, added, model = (_read_object(folder / name) for name in SETTINGS_FILES)
    for key in SWITCHES:
        for name, found in ((TOKENIZER_CONFIG, config), (SPECIAL_TOKENS, special)):
            if not isinstance(found.get(key), bool | None):
                raise ValueError(f"{name}: {key} is {found[key]!r:.80}, not true or false")
    decoder = config.get("added_tokens_decoder")
    # `transformers` reads the older files only without `added_tokens_decoder`.
    named = special | config
    extra = [
        _parse_token(token, key, special=True)
        for key in EXTRA_KEYS
        for token in _list_extra(named.get(key), key)
    ]
    special_tokens = [
        _parse_token(named[f"{role}_token"], f"{role}_token", special=True)
        for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
        if named.get(f"{role}_token")
    ]
    names = {token["content"] for token in (*special_tokens, *extra)}
    if decoder is not None:
        tokens = _parse_decoder(decoder)
    else:
        tokens = [
            _parse_token(content, ADDED_TOKENS, special=content in names) | {"id": token_id}
            for content, token_id in added.items()
        ]
    file, key = (ADDED_TOKENS, "it") if decoder is None else (TOKENIZER_CONFIG, DECODER)
    check_added_count(f"{file}: {key}", len(tokens))
    for token in tokens:
        check_id(token["content"], token["id"])
    tokens.sort(key=lambda token: token["id"])
    known = {token["content"] for token in tokens}
    check_added_count(f"{TOKENIZER_CONFIG}: {EXTRA_KEYS[0]}", len(extra))
    tokens += [token for token in (*special_tokens, *extra) if token["content"] not in known]
    tokenizer, unknown_class = _find_class(config, model)
    sentinels = config.get("extra_ids")
    if sentinels is not None and (
        type(sentinels) is not int or not 0 <= sentinels <= MAX_SENTINELS
    ):
        raise ValueError(
            f"{TOKENIZER_CONFIG}: extra_ids is {sentinels!r:.80}, not 0 to {MAX_SENTINELS}"
        )
    return FolderSettings(
        tokenizer=tokenizer,
        unknown_class=unknown_class,
        switches={key: named[key] for key in SWITCHES if key in named},
        sentinels=sentinels,
        roles=_read_roles(named, _read_stand_ins(config)),
        tokens=tuple(tokens),
        replaces=decoder is not None,
    )


def _read_roles(named: dict[str, Any], stand_ins: dict[str, str | None]) -> dict[str, str]:
    """Return {role: special token}, of which a token in `stand_ins` replaces the named one."""
    found = {
        role: _parse_token(named[f"{role}_token"], f"{role}_token", special=True)["content"]
        for role in ROLE_PIECES
        if named.get(f"{role}_token") and f"{role}_token" not in stand_ins
    }
    return found | {
        name.removesuffix("_token"): token for name, token in stand_ins.items() if token
    }


def _read_stand_ins(config: dict[str, Any]) -> dict[str, str | None]:
    """Return {name of a special token: the vocabulary's own, or None} of an export of Cloze."""
    found = config.get(STAND_INS) or {}
    known = {f"{role}_token" for role in ROLE_PIECES}
    if not isinstance(found, dict) or not all(
        name in known and isinstance(token, str | None) and len(token or "") <= MAX_TOKEN
        for name, token in found.items()
    ):
        raise ValueError(
            f"{TOKENIZER_CONFIG}: {STAND_INS} is {found!r:.80}, not {{name of a special token: "
            "the vocabulary's own, or null}"
        )
    return found


def _read_object(file: pathlib.Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if it is absent."""
    if not file.exists():
        return {}
    found = read_bounded_json(file)
    if not isinstance(found, dict):
        raise ValueError(f"{file}: holds {type(found).__name__}, expected a JSON object")
    return found


def _find_class(config: dict[str, Any], model: dict[str, Any]) -> tuple[str, str]:
    """Return (what the tokenizer's class reads, the name of a class that is not known)."""
    for file, settings in ((TOKENIZER_CONFIG, config), (MODEL_CONFIG, model)):
        name = settings.get("tokenizer_class")
        if not isinstance(name, str | None):
            raise ValueError(f"{file}: tokenizer_class is {name!r:.80}, not a name")
        if name:
            known = name if name in TOKENIZERS else name.removesuffix("Fast")
            return (TOKENIZERS[known], "") if known in TOKENIZERS else ("", name)
    kind = model.get("model_type")
    return (MODEL_TOKENIZERS.get(kind, "") if isinstance(kind, str) else ""), ""


def _list_extra(tokens: Any, key: str) -> list[Any]:
    """Return the tokens of a list, or of {name: token}; [] for None."""
    if isinstance(tokens, dict):
        tokens = list(tokens.values())
    if not isinstance(tokens, list | None):
        raise ValueError(f"{TOKENIZER_CONFIG}: {key} is {tokens!r:.80}, not a list of tokens")
    return tokens or []


def _parse_decoder(decoder: Any) -> list[dict[str, Any]]:
    """Return the tokens of `added_tokens_decoder`, which is {id: token}."""
    if not isinstance(decoder, dict):
        raise ValueError(
            f"{TOKENIZER_CONFIG}: added_tokens_decoder is {decoder!r:.80}, not an object of id: "
            "token"
        )
    tokens = []
    for key, value in decoder.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10 and isinstance(value, dict)):
            raise ValueError(
                f"{TOKENIZER_CONFIG}: added_tokens_decoder has {key[:20]!r}: {value!r:.80}, not an "
                "id and a token"
            )
        token = _parse_token(value, "added_tokens_decoder", special=False)
        tokens.append(token | {"id": int(key)})
    return tokens


def _parse_token(token: Any, key: str, *, special: bool) -> dict[str, Any]:
    """Return a token with all its flags from a piece, or from {"content": piece, flag: value}.

    A flag that is not given is None in `lstrip` of a special token, and has the value that
    `transformers` takes elsewhere.
    """
    given = token if isinstance(token, dict) else {"content": token}
    content = given.get("content")
    if not isinstance(content, str) or not 0 < len(content) <= MAX_TOKEN:
        raise ValueError(
            f"{key} is {token!r:.80}; a token has 1 to {MAX_TOKEN} characters, or is an object "
            "with content"
        )
    for flag in FLAGS:
        if flag in given and not isinstance(given[flag], bool):
            raise ValueError(f"{key}: {flag} of {content[:60]!r} is {given[flag]!r:.80}")
    special = special or given.get("special", False)
    defaults = dict.fromkeys(FLAGS, False) | {"normalized": not special, "special": special}
    if special:
        defaults["lstrip"] = None
    found = {flag: given.get(flag, default) for flag, default in defaults.items()}
    return {"id": None, "content": content, **found, "special": special}
