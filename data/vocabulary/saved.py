"""Load a vocabulary from the folder that its `save` wrote."""

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from data.corpus.paths import as_path, is_remote
from data.corpus.untrusted import (
    MAX_VOCABULARY_BYTES,
    read_bounded,
    read_bounded_json,
    read_bounded_text,
)
from data.members import call_later
from data.vocabulary.base import (
    DESCRIPTION_FILE,
    MAX_SENTINELS,
    VERSION,
    Vocabulary,
    find_difference,
)

# What makes a vocabulary of each kind of its files.
SentencePieceVocabulary = call_later("data.vocabulary.sentencepiece:SentencePieceVocabulary")
read_wordpiece = call_later("data.vocabulary.released:read_wordpiece")
read_byte_bpe = call_later("data.vocabulary.released:read_byte_bpe")
read_word_bpe = call_later("data.vocabulary.released:read_word_bpe")
read_residues = call_later("data.vocabulary.letters.alphabets:read_residues")
read_tokenizer_json = call_later("data.vocabulary.tokenizer_json:read_tokenizer_json")


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
    with naming_files(folder):
        vocabulary = _load_described(folder, description)
    if difference := find_difference(vocabulary, description):
        raise ValueError(
            f"{folder}: {difference}: its files are not the ones that were saved, or this version "
            "of a library normalizes text differently"
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
    appended = options.get("appended", 0)
    if type(appended) is not int or not 0 <= appended <= MAX_SENTINELS:
        raise ValueError(
            f"{DESCRIPTION_FILE}: appended is {appended!r:.80}, not 0 to {MAX_SENTINELS}"
        )
    kinds = {
        "sentencepiece": lambda: SentencePieceVocabulary(
            read_bounded(folder / "spiece.model", MAX_VOCABULARY_BYTES), **options
        ),
        "wordpiece": lambda: read_wordpiece(read_vocabulary_text(folder / "vocab.txt"), **options),
        "byte_bpe": lambda: read_byte_bpe(
            read_vocabulary_text(folder / "vocab.json"),
            read_vocabulary_text(folder / "merges.txt"),
            **options,
        ),
        "word_bpe": lambda: read_word_bpe(
            read_vocabulary_text(folder / "vocab.json"), read_vocabulary_text(folder / "merges.txt")
        ),
        "residues": lambda: read_residues(read_vocabulary_text(folder / "vocab.txt"), **options),
        "tokenizer_json": lambda: read_tokenizer_json(
            read_vocabulary_text(folder / "tokenizer.json"), **options
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
def naming_files(path: pathlib.Path) -> Iterator[None]:
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


def read_vocabulary_text(path: pathlib.Path) -> str:
    """Return the text of a file of a vocabulary, which is bounded."""
    return read_bounded_text(path, MAX_VOCABULARY_BYTES)
