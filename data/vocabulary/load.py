"""Vocabularies by name: train one, read a released one, save it, load it again.

kind               files                                          library
sentencepiece      spiece.model (+ sentinels for T5)              sentencepiece    train_vocabulary, T5, ALBERT
wordpiece          vocab.txt                                      tokenizers       BERT
byte_bpe           vocab.json + merges.txt                        tokenizers       train_vocabulary, GPT-2, RoBERTa
word_bpe           vocab.json + merges.txt                        tokenizers       GPT
tokenizer_json     tokenizer.json                                 tokenizers       whatever else `transformers` writes

A folder that `save` wrote holds these files, as others read them, and `vocabulary.json`, which names the kind, its
options and the fingerprint. data/vocabulary/base.py says what a vocabulary offers.
"""

import json
import pathlib

from data.corpus.paths import as_path
from data.vocabulary.base import DESCRIPTION, PROBE, ROLES, VERSION, Vocabulary
from data.vocabulary.byte_bpe import train_byte_bpe
from data.vocabulary.layouts import DEFAULT
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
    texts, size, layout=DEFAULT, algorithm="unigram", lowercase=False
) -> Vocabulary:
    """Train a vocabulary of `size` ids, specials and sentinels included: see train_sentencepiece and train_byte_bpe.

    Raises ValueError for a layout that the algorithm does not have, and for too little text.
    """
    if algorithm == "byte_bpe":
        return train_byte_bpe(texts, size, layout, lowercase)
    return train_sentencepiece(texts, size, layout, algorithm, lowercase)


def load_vocabulary(folder) -> Vocabulary:
    """The vocabulary that `save` wrote into `folder`; refuses files that are not the ones that were saved."""
    folder = as_path(folder)
    if not (folder / DESCRIPTION).exists():
        raise FileNotFoundError(f"{folder}: no {DESCRIPTION}; read_vocabulary reads released files")
    described = json.loads((folder / DESCRIPTION).read_text())
    if described["version"] != VERSION:
        raise ValueError(
            f"{folder / DESCRIPTION}: version {described['version']}, this program reads {VERSION}"
        )
    options = described["options"]
    kinds = {
        "sentencepiece": lambda: SentencePieceVocabulary(
            (folder / "spiece.model").read_bytes(), **options
        ),
        "wordpiece": lambda: read_wordpiece(_text(folder / "vocab.txt"), **options),
        "byte_bpe": lambda: read_byte_bpe(
            _text(folder / "vocab.json"), _text(folder / "merges.txt")
        ),
        "word_bpe": lambda: read_word_bpe(
            _text(folder / "vocab.json"), _text(folder / "merges.txt")
        ),
        "tokenizer_json": lambda: read_tokenizer_json(_text(folder / "tokenizer.json"), **options),
    }
    if described["kind"] not in kinds:
        raise ValueError(
            f"{folder / DESCRIPTION}: kind {described['kind']!r}, not one of {', '.join(kinds)}"
        )
    vocabulary = kinds[described["kind"]]()
    if vocabulary.fingerprint != described["fingerprint"]:
        raise ValueError(
            f"{folder}: its fingerprint is {vocabulary.fingerprint}, saved was {described['fingerprint']}: "
            "its files were changed, or a library normalises text otherwise than the one that saved it"
        )
    return vocabulary


def read_vocabulary(path) -> Vocabulary:
    """A released vocabulary: one of the files above (GPT-2's encoder.json and vocab.bpe too), or a folder of them.

    Where a folder has a tokenizer.json and another form beside it, the other form is taken if the two agree on every
    piece and on a text of many of them, else tokenizer.json, because that is what `transformers` reads.
    """
    path = as_path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such vocabulary")
    try:
        return _read_folder(path) if path.is_dir() else _read_file(path)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a vocabulary ({error})") from error


def _read_folder(folder) -> Vocabulary:
    if (folder / DESCRIPTION).exists():
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
    whole = _read_file(json_file)
    for model in models:
        plain = _read_file(model)
        if plain.pieces == whole.pieces and plain.encode(probe := _probe(plain)) == whole.encode(
            probe
        ):
            return plain
    return whole


def _probe(vocabulary: Vocabulary) -> str:
    """A text that tells two ways of normalising apart: odd characters, and pieces in lower and upper case."""
    plain = [
        piece.strip("▁Ġ#")
        for piece, hidden in zip(vocabulary.pieces, vocabulary.special)
        if not hidden
    ]
    some = plain[:: len(plain) // 1000 + 1]
    return " ".join([PROBE, *some, *(piece.upper() for piece in some)])


def _read_file(path) -> Vocabulary:
    if path.name.endswith(".model"):
        return read_sentencepiece(path.read_bytes())
    beside = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}
    if first := next((a for a, b in beside.items() if path.name == b), None):
        path = path.parent / first
    if path.name in beside:
        merges = [
            path.parent / name
            for name in ("merges.txt", "vocab.bpe")
            if (path.parent / name).exists()
        ]
        if not merges:
            raise FileNotFoundError(f"{path}: BPE needs {beside[path.name]} beside it")
        read = read_word_bpe if is_word_bpe(_text(path)) else read_byte_bpe
        return read(_text(path), _text(merges[0]))
    config = _settings(path.parent)
    if path.name.endswith(".txt"):
        return read_wordpiece(
            _text(path),
            lowercase=config.get("do_lower_case"),
            strip_accents=config.get("strip_accents"),
            chinese=config.get("tokenize_chinese_chars", True),
        )
    if path.name.endswith(".json"):
        return read_tokenizer_json(_text(path), _named_roles(config))
    raise ValueError(
        f"{path}: a vocabulary is a *.model, vocab.txt, vocab.json with merges.txt, or tokenizer.json"
    )


def _settings(folder) -> dict:
    """What `transformers` keeps beside a tokenizer, special_tokens_map.json and tokenizer_config.json; {} if absent."""
    files = [folder / name for name in ("special_tokens_map.json", "tokenizer_config.json")]
    settings = {}
    for file in files:
        if file.exists():
            settings |= json.loads(_text(file))
    return settings


def _named_roles(config: dict) -> dict[str, str]:
    named = {role: config.get(f"{role}_token") for role in ROLES}
    pieces = {
        role: piece["content"] if isinstance(piece, dict) else piece
        for role, piece in named.items()
    }
    return {role: piece for role, piece in pieces.items() if piece}


def _text(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")
