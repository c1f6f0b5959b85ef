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

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from data.corpus.paths import as_path, is_remote
from data.corpus.untrusted import (
    MAX_VOCABULARY_BYTES,
    check_own_file,
    read_bounded,
    read_bounded_json,
    read_bounded_text,
)
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

# Files of a released vocabulary besides those that begin it.
OTHER_FILES = ("merges.txt", "vocab.bpe", "special_tokens_map.json", "tokenizer_config.json")

# Characters of a piece with which two forms are compared: some patterns take quadratic time.
MAX_PROBED = 100

# Settings that are true, false or null.
SWITCHES = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")

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
    description = _read_description(folder / DESCRIPTION_FILE)
    with _naming_files(folder):
        vocabulary = _load_described(folder, description)
    if vocabulary.fingerprint != description["fingerprint"]:
        raise ValueError(
            f"{folder}: its fingerprint is {vocabulary.fingerprint}, but "
            f"{description['fingerprint'][:80]!r} was saved: its files were changed, or this "
            "version of a library normalizes text differently"
        )
    return vocabulary


def _read_description(path: pathlib.Path) -> dict[str, Any]:
    """Return the content of a `vocabulary.json`; raise ValueError, which names it, if broken."""
    description = read_bounded_json(path)
    if not isinstance(description, dict) or "version" not in description:
        raise ValueError(f"{path} is broken: it has no version")
    if description["version"] != VERSION:
        raise ValueError(
            f"{path}: version {description['version']!r:.80}, this program reads {VERSION}"
        )
    for key, kind in (("kind", str), ("options", dict), ("fingerprint", str)):
        if not isinstance(description.get(key), kind):
            raise ValueError(f"{path} is broken: {key} is {description.get(key)!r:.80}")
    return description


def _load_described(folder: pathlib.Path, description: dict[str, Any]) -> Vocabulary:
    """Return the vocabulary of a folder with the kind and the options of its description."""
    options = description["options"]
    kinds = {
        "sentencepiece": lambda: SentencePieceVocabulary(
            read_bounded(folder / "spiece.model", MAX_VOCABULARY_BYTES), **options
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
            f"{DESCRIPTION_FILE}: kind {description['kind']!r:.80}, not one of {', '.join(kinds)}"
        )
    try:
        return kinds[description["kind"]]()
    except TypeError:  # an option that the kind does not have
        raise ValueError(f"{DESCRIPTION_FILE}: options {options!r:.200} do not fit") from None


@contextlib.contextmanager
def _naming_files(path: pathlib.Path) -> Iterator[None]:
    """Raise errors of the block with the path of the file, or of the folder with it."""
    try:
        yield
    except FileNotFoundError:
        raise
    except ValueError as error:
        message, folder = str(error), path if path.is_dir() else path.parent
        if str(folder) in message:
            raise
        is_named = message.split(":")[0] in os.listdir(folder) if not is_remote(path) else False
        raise ValueError(f"{folder / message}" if is_named else f"{path}: {message}") from error


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
    return _read_folder(path) if path.is_dir() else _read_file(path)


def _read_folder(folder: pathlib.Path) -> Vocabulary:
    if (folder / DESCRIPTION_FILE).exists():
        return load_vocabulary(folder)
    names = ("spiece.model", "tokenizer.model", "vocab.txt", "vocab.json", "encoder.json")
    models = [folder / name for name in names if (folder / name).exists()]
    models = models or sorted(folder.glob("*.model"))
    json_file = folder / "tokenizer.json"
    if not is_remote(folder):
        for path in (*models, json_file, *(folder / name for name in OTHER_FILES)):
            check_own_file(path)
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
        if not hidden and len(piece) <= MAX_PROBED
    ]
    sample = plain[:: len(plain) // 1000 + 1]
    return " ".join([PROBE_TEXT, *sample, *(piece.upper() for piece in sample)])


def _read_file(path: pathlib.Path) -> Vocabulary:
    with _naming_files(path):
        return _read_named_file(path)


def _read_named_file(path: pathlib.Path) -> Vocabulary:
    if path.name.endswith(".model"):
        return read_sentencepiece(read_bounded(path, MAX_VOCABULARY_BYTES))
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
            chinese=config.get("tokenize_chinese_chars") is not False,
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
            found = read_bounded_json(file)
            if not isinstance(found, dict):
                raise ValueError(f"{file}: holds {type(found).__name__}, expected a JSON object")
            for key in SWITCHES:
                if not isinstance(found.get(key), bool | None):
                    raise ValueError(f"{file}: {key} is {found[key]!r:.80}, not true or false")
            settings |= found
    return settings


def _parse_roles(config: dict[str, Any]) -> dict[str, str]:
    """Return {role: special token} of the settings of `transformers`."""
    named = {role: config.get(f"{role}_token") for role in ROLE_PIECES}
    pieces = {
        role: piece.get("content") if isinstance(piece, dict) else piece
        for role, piece in named.items()
    }
    for role, piece in pieces.items():
        if not isinstance(piece, str | None):
            raise ValueError(f"tokenizer_config.json: {role}_token is {piece!r:.80}, not a piece")
    return {role: piece for role, piece in pieces.items() if piece}


def _read_text(path: pathlib.Path) -> str:
    """Return the text of a file of a vocabulary, which is bounded."""
    return read_bounded_text(path, MAX_VOCABULARY_BYTES)
