"""Train a vocabulary, load a saved one, or read a released one.

kind              files                      library         used by
sentencepiece     spiece.model               sentencepiece   training here, T5, ALBERT
wordpiece         vocab.txt                  tokenizers      BERT
byte_bpe          vocab.json + merges.txt    tokenizers      training here, GPT-2, RoBERTa
word_bpe          vocab.json + merges.txt    tokenizers      GPT
tokenizer_json    tokenizer.json             tokenizers      other models of `transformers`

A saved vocabulary is a folder with these files in their released form, and `vocabulary.json` with
the kind, its options and the fingerprint. data/vocabulary/base.py has the interface.
"""

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

from data.corpus.paths import as_path
from data.vocabulary.base import DESCRIPTION_FILE, PROBE_TEXT, ROLE_PIECES, VERSION, Vocabulary
from data.vocabulary.byte_bpe import train_byte_bpe
from data.vocabulary.layouts import DEFAULT_LAYOUT
from data.vocabulary.released import (
    is_word_bpe,
    read_byte_bpe,
    read_tokenizer_json,
    read_word_bpe,
    read_wordpiece,
)
from data.vocabulary.sentencepiece import (
    SentencePieceVocabulary,
    read_sentencepiece,
    train_sentencepiece,
)

__all__ = [
    "Vocabulary",
    "load_vocabulary",
    "read_vocabulary",
    "train_vocabulary",
]


def train_vocabulary(
    texts: Iterable[str],
    size: int,
    layout: str = DEFAULT_LAYOUT,
    algorithm: str = "unigram",
    lowercase: bool = False,
) -> Vocabulary:
    """Train a vocabulary.

    Args:
      texts: sentences or paragraphs.
      size: number of ids, special tokens and sentinels included.
      layout: name of a layout of special tokens, see data/vocabulary/layouts.py.
      algorithm: unigram, bpe or byte_bpe.
      lowercase: whether case is folded.

    Raises:
      ValueError: if an option is not valid, or there is too little text for the size.
    """
    if algorithm == "byte_bpe":
        return train_byte_bpe(texts, size, layout, lowercase)
    return train_sentencepiece(texts, size, layout, algorithm, lowercase)


def load_vocabulary(folder: str | os.PathLike[str]) -> Vocabulary:
    """Load a vocabulary from a folder that its `save` wrote.

    Raises:
      FileNotFoundError: if the folder has no saved vocabulary.
      ValueError: if its version or kind is unknown, or its files are not the ones that were saved.
    """
    folder = as_path(folder)
    if not (folder / DESCRIPTION_FILE).exists():
        raise FileNotFoundError(
            f"{folder}: no {DESCRIPTION_FILE}; read_vocabulary reads released files"
        )
    description = json.loads((folder / DESCRIPTION_FILE).read_text())
    if description["version"] != VERSION:
        raise ValueError(
            f"{folder / DESCRIPTION_FILE}: version {description['version']}, "
            f"this program reads {VERSION}"
        )
    options = description["options"]
    kinds = {
        "sentencepiece": lambda: SentencePieceVocabulary(
            (folder / "spiece.model").read_bytes(), **options
        ),
        "wordpiece": lambda: read_wordpiece(_read_text(folder / "vocab.txt"), **options),
        "byte_bpe": lambda: read_byte_bpe(
            _read_text(folder / "vocab.json"), _read_text(folder / "merges.txt")
        ),
        "word_bpe": lambda: read_word_bpe(
            _read_text(folder / "vocab.json"), _read_text(folder / "merges.txt")
        ),
        "tokenizer_json": lambda: read_tokenizer_json(
            _read_text(folder / "tokenizer.json"), **options
        ),
    }
    if description["kind"] not in kinds:
        raise ValueError(
            f"{folder / DESCRIPTION_FILE}: kind {description['kind']!r}, "
            f"not one of {', '.join(kinds)}"
        )
    vocabulary = kinds[description["kind"]]()
    if vocabulary.fingerprint != description["fingerprint"]:
        raise ValueError(
            f"{folder}: its fingerprint is {vocabulary.fingerprint}, but "
            f"{description['fingerprint']} was saved: its files were changed, or this version of a "
            "library normalizes text differently"
        )
    return vocabulary


def read_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Read a released vocabulary: one of the files above, or a folder with them.

    GPT-2's encoder.json and vocab.bpe are read, too. If a folder has a tokenizer.json and another
    form, the other form is used if both have the same pieces and encode a text of many pieces to
    the same ids. Otherwise tokenizer.json is used, as `transformers` does.

    Raises:
      FileNotFoundError: if there is no vocabulary at this path.
      ValueError: if a file is not a vocabulary.
    """
    path = as_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such vocabulary")
    try:
        return _read_folder(path) if path.is_dir() else _read_file(path)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a vocabulary ({error})") from error


def _read_folder(folder: pathlib.Path) -> Vocabulary:
    if (folder / DESCRIPTION_FILE).exists():
        return load_vocabulary(folder)
    names = ("spiece.model", "tokenizer.model", "vocab.txt", "vocab.json", "encoder.json")
    models = [folder / name for name in names if (folder / name).exists()]
    models = models or sorted(folder.glob("*.model"))
    json_file = folder / "tokenizer.json"
    if not json_file.exists():
        if not models:
            raise FileNotFoundError(
                f"{folder}: no vocabulary here; expected spiece.model, vocab.txt, "
                "vocab.json with merges.txt, or tokenizer.json"
            )
        return _read_file(models[0])
    from_json = _read_file(json_file)
    for model in models:
        vocabulary = _read_file(model)
        if vocabulary.pieces == from_json.pieces:
            probe = _build_probe_text(vocabulary)
            if vocabulary.encode(probe) == from_json.encode(probe):
                return vocabulary
    return from_json


def _build_probe_text(vocabulary: Vocabulary) -> str:
    """Return a text whose ids differ if the normalization does: rare characters, mixed case."""
    plain = [
        piece.strip("▁Ġ#")
        for piece, hidden in zip(vocabulary.pieces, vocabulary.special)
        if not hidden
    ]
    sample = plain[:: len(plain) // 1000 + 1]
    return " ".join([PROBE_TEXT, *sample, *(piece.upper() for piece in sample)])


def _read_file(path: pathlib.Path) -> Vocabulary:
    if path.name.endswith(".model"):
        return read_sentencepiece(path.read_bytes())
    merges_names = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
    if first := next((vocab for vocab, name in merges_names.items() if path.name == name), None):
        path = path.parent / first
    if path.name in merges_names:
        merges = [
            path.parent / name
            for name in ("merges.txt", "vocab.bpe")
            if (path.parent / name).exists()
        ]
        if not merges:
            raise FileNotFoundError(
                f"{path}: BPE needs {merges_names[path.name]} in the same folder"
            )
        read = read_word_bpe if is_word_bpe(_read_text(path)) else read_byte_bpe
        return read(_read_text(path), _read_text(merges[0]))
    config = _read_settings(path.parent)
    if path.name.endswith(".txt"):
        return read_wordpiece(
            _read_text(path),
            lowercase=config.get("do_lower_case"),
            strip_accents=config.get("strip_accents"),
            chinese=config.get("tokenize_chinese_chars", True),
        )
    if path.name.endswith(".json"):
        return read_tokenizer_json(_read_text(path), _parse_roles(config))
    raise ValueError(
        f"{path}: a vocabulary is a *.model, vocab.txt, vocab.json with merges.txt, "
        "or tokenizer.json"
    )


def _read_settings(folder: pathlib.Path) -> dict[str, Any]:
    """Return the settings of `transformers`; {} if its files are absent.

    They are in special_tokens_map.json and tokenizer_config.json.
    """
    files = [folder / name for name in ("special_tokens_map.json", "tokenizer_config.json")]
    settings = {}
    for file in files:
        if file.exists():
            settings |= json.loads(_read_text(file))
    return settings


def _parse_roles(config: dict[str, Any]) -> dict[str, str]:
    """Return {role: special token} of the settings of `transformers`."""
    named = {role: config.get(f"{role}_token") for role in ROLE_PIECES}
    pieces = {
        role: piece["content"] if isinstance(piece, dict) else piece
        for role, piece in named.items()
    }
    return {role: piece for role, piece in pieces.items() if piece}


def _read_text(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")
