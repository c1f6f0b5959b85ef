"""Train a vocabulary, load a saved one, or read a released one.

kind              files                      library         used by
sentencepiece     spiece.model               sentencepiece   training here, T5, ALBERT
wordpiece         vocab.txt                  tokenizers      BERT
byte_bpe          vocab.json + merges.txt    tokenizers      training here, GPT-2, RoBERTa
word_bpe          vocab.json + merges.txt    tokenizers      GPT
residues          vocab.txt                  tokenizers      ESM-2, k-mers of DNA
tokenizer_json    tokenizer.json             tokenizers      other models of `transformers`

A saved vocabulary is a folder with these files in their released form, and `vocabulary.json` with
the kind, its options and the fingerprint. data/vocabulary/base.py has the interface.
"""

import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

from data.corpus.buckets import check_bucket
from data.corpus.paths import as_path, is_remote
from data.corpus.untrusted import MAX_VOCABULARY_BYTES, check_own_file, read_bounded
from data.vocabulary.added_tokens import (
    COMPOSED,
    FOLDED,
    add_tokens,
    apply_settings,
    build_unigram,
    has_roles,
    is_expressed,
    list_special_tokens,
)
from data.vocabulary.base import DESCRIPTION_FILE, PROBE_TEXT, ROLE_PIECES, Vocabulary
from data.vocabulary.byte_bpe import train_byte_bpe
from data.vocabulary.folder_settings import (
    SETTINGS_FILES,
    TOKENIZER_CONFIG,
    FolderSettings,
    read_folder_settings,
)
from data.vocabulary.layouts import DEFAULT_LAYOUT, TOKENIZERS, check_training
from data.vocabulary.letters.alphabets import (
    KIND,
    has_overlapping_kmers,
    make_alphabet,
    read_residues,
)
from data.vocabulary.released import (
    ReleasedVocabulary,
    is_word_bpe,
    read_byte_bpe,
    read_word_bpe,
    read_wordpiece,
)
from data.vocabulary.saved import load_vocabulary, naming_files, read_vocabulary_text
from data.vocabulary.sentencepiece import SentencePieceVocabulary, read_sentencepiece
from data.vocabulary.sentencepiece_training import train_sentencepiece
from data.vocabulary.tokenizer_json import read_tokenizer_json
from data.vocabulary.word_level import make_word_vocabulary

ALPHABET = "alphabet:"  # begins the name of one instead of a path
# Further files of a released vocabulary, which do not begin it.
OTHER_FILES = ("merges.txt", "vocab.bpe", *SETTINGS_FILES)

# Characters of a piece with which two forms are compared: some patterns take quadratic time.
MAX_PROBED = 100

# {what the class of a tokenizer reads: the class}, for SentencePiece models.
UNIGRAMS = {
    kind: name for name, kind in TOKENIZERS.items() if kind in ("unigram", FOLDED, COMPOSED)
}

__all__ = ["Vocabulary", "load_vocabulary", "read_vocabulary", "train_vocabulary"]


def train_vocabulary(
    texts: Iterable[str],
    size: int,
    layout: str = DEFAULT_LAYOUT,
    algorithm: str = "unigram",
    lowercase: bool = False,
    reserved: int = 0,
    report: Callable[[str], None] = lambda line: None,
    **options: Any,
) -> Vocabulary:
    """Train a vocabulary.

    Args:
      size: number of ids, special tokens and sentinels included.
      layout: name of a layout of special tokens, see data/vocabulary/layouts.py.
      algorithm: unigram, bpe, byte_bpe or words.
      reserved: number of these ids that are left for tokens which are added later, to byte_bpe.
      options: `character_coverage`, `byte_fallback`, `split_digits` of `SentencePieceOptions`.

    Raises:
      ValueError: if an option is not valid, or there is too little text for the size.
    """
    check_training(algorithm, options)
    if algorithm == "words":
        if lowercase:
            raise ValueError("words are as they are written: leave out --lowercase")
        return make_word_vocabulary(texts, size=size)
    if algorithm == "byte_bpe":
        return train_byte_bpe(texts, size, layout, lowercase, reserved)
    return train_sentencepiece(
        texts, size, report, layout=layout, algorithm=algorithm, lowercase=lowercase, **options
    )


def read_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """Read a released vocabulary: one of the files above, a folder with them, or alphabet:NAME.

    GPT-2's encoder.json and vocab.bpe are read, too. In a folder, the settings of `transformers`
    apply: data/vocabulary/folder_settings.py. The form of the files is kept where it can express
    them, and so it is if a tokenizer.json next to it has the same pieces and encodes a text of many
    pieces to the same ids. Otherwise the vocabulary is a tokenizer.json, as for `transformers`.

    Raises:
      FileNotFoundError: if there is no vocabulary at this path.
      ValueError: if a file is not a vocabulary, or its settings are not valid.
    """
    if str(path).startswith(ALPHABET):
        return make_alphabet(str(path).removeprefix(ALPHABET))
    check_bucket(path)
    path = as_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such vocabulary")
    if path.is_dir():
        return _read_folder(path)
    with naming_files(path):
        return _read_named_file(path, _read_settings(path.parent))


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
    settings = _read_settings(folder)
    if not json_file.exists():
        if not models:
            raise FileNotFoundError(
                f"{folder}: no vocabulary here; expected spiece.model, vocab.txt, "
                "vocab.json with merges.txt, or tokenizer.json"
            )
        with naming_files(models[0]):
            return _extend_vocabulary(_read_named_file(models[0], settings), settings)
    with naming_files(json_file):
        text = read_vocabulary_text(json_file)
        plain_json = read_tokenizer_json(text, settings.roles)
        changed = apply_settings(text, settings)
        from_json = plain_json if changed == text else read_tokenizer_json(changed, settings.roles)
    tokens = [*json.loads(changed).get("added_tokens", ())]
    for model in models:
        with naming_files(model):
            vocabulary = _read_named_file(model, settings)
        if vocabulary.pieces == from_json.pieces and is_expressed(tokens, vocabulary):
            probe = _build_probe_text(vocabulary)
            # A tokenizer.json cannot cut tokens that overlap.
            if vocabulary.overlap or vocabulary.encode(probe) == from_json.encode(probe):
                return vocabulary
    return from_json


def _read_settings(folder: pathlib.Path) -> FolderSettings:
    """Return the settings of a folder. Raises ValueError, which names the folder, for bad ones."""
    with naming_files(folder):
        return read_folder_settings(folder)


def _extend_vocabulary(
    plain: SentencePieceVocabulary | ReleasedVocabulary, settings: FolderSettings
) -> Vocabulary:
    """Return the vocabulary of a folder without tokenizer.json, with the tokens of its settings."""
    if settings.unknown_class:
        raise ValueError(
            f"{TOKENIZER_CONFIG}: tokenizer_class is {settings.unknown_class[:80]!r}; "
            f"{', '.join(TOKENIZERS)} are read, and any class with a tokenizer.json: write one "
            "with save_pretrained of the tokenizer"
        )
    is_folded = settings.tokenizer in (FOLDED, COMPOSED) and isinstance(
        plain, SentencePieceVocabulary
    )
    if not is_folded and is_expressed(settings.tokens, plain) and has_roles(plain, settings.roles):
        return plain
    if isinstance(plain, SentencePieceVocabulary):
        if settings.tokenizer not in UNIGRAMS:
            raise ValueError(
                f"{settings.tokens[0]['content'][:60]!r} is an added token, and how it is found "
                f"in a text depends on the tokenizer's class: name it in {TOKENIZER_CONFIG} "
                f"(tokenizer_class: {' or '.join(UNIGRAMS.values())}), or add a tokenizer.json"
            )
        text = build_unigram(plain, settings)
    else:
        text = plain.to_json()
    known = {token["content"] for token in settings.tokens}
    usual = [
        token
        for token in list_special_tokens(plain, settings.roles)
        if token["content"] not in known
    ]
    roles = {
        role: plain.pieces[i] for role in ROLE_PIECES if (i := getattr(plain, role)) is not None
    }
    composed = read_tokenizer_json(
        add_tokens(text, [*usual, *settings.tokens]), roles | settings.roles
    )
    if is_folded and composed.pieces == plain.pieces and is_expressed(settings.tokens, plain):
        probe = _build_probe_text(plain)
        if plain.encode(probe) == composed.encode(probe):
            return plain
    return composed


def _build_probe_text(vocabulary: Vocabulary) -> str:
    """Return a text whose ids differ if the normalization does: rare characters, mixed case."""
    plain = [
        piece.strip("▁Ġ#")
        for piece, hidden in zip(vocabulary.pieces, vocabulary.special)
        if not hidden and len(piece) <= MAX_PROBED
    ]
    sample = plain[:: len(plain) // 1000 + 1]
    return " ".join([PROBE_TEXT, *sample, *(piece.upper() for piece in sample)])


def _read_named_file(
    path: pathlib.Path, settings: FolderSettings
) -> SentencePieceVocabulary | ReleasedVocabulary:
    """Return the vocabulary in a file, with the switches that the files next to it name."""
    switches = settings.switches
    if path.name.endswith(".model"):
        return read_sentencepiece(read_bounded(path, MAX_VOCABULARY_BYTES), settings.sentinels)
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
        texts = read_vocabulary_text(path), read_vocabulary_text(merges[0])
        if is_word_bpe(texts[0]):
            return read_word_bpe(*texts)
        return read_byte_bpe(*texts, prefix_space=bool(switches.get("add_prefix_space")))
    if path.name.endswith(".txt"):
        text = read_vocabulary_text(path)
        if settings.tokenizer == KIND or has_overlapping_kmers(text.split()):
            return read_residues(text)
        return read_wordpiece(
            text,
            lowercase=switches.get("do_lower_case"),
            strip_accents=switches.get("strip_accents"),
            chinese=switches.get("tokenize_chinese_chars") is not False,
            unknown=settings.roles.get("unk", "[UNK]"),
        )
    if path.name.endswith(".json"):
        return read_tokenizer_json(read_vocabulary_text(path), settings.roles)
    raise ValueError(
        f"{path}: a vocabulary is a *.model, vocab.txt, vocab.json with merges.txt, "
        "or tokenizer.json"
    )
