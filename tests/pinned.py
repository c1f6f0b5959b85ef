"""Files that must stay byte-identical, and the vocabularies from which they are written.

Digests are in tests/goldens/pinned.json. They were taken before the code was reorganised. After an
intended change of a file, put the digest that the failing test prints there, and describe in docs/notebook
what changes for users of such files.
"""

import hashlib
import json
import pathlib
import shutil

import tokenizers

from data.vocabulary.load import Vocabulary, read_vocabulary
from data.vocabulary.sentencepiece import SentencePieceVocabulary
from data.vocabulary.sentencepiece_proto import ModelProto

GOLDENS = pathlib.Path(__file__).parent / "goldens"
LETTERS = "abcdefghijklmnopqrstuvwxyz.,'"


def hash_files(folder) -> dict[str, str]:
    """Return {relative name: start of the SHA-256} of all files in `folder`."""
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in files
    }


def check_pinned(section: str, case: str, found: dict[str, str]) -> None:
    """Raise AssertionError, which prints the digests that differ, unless they equal those of
    pinned.json.
    """
    expected = json.loads((GOLDENS / "pinned.json").read_text())[section][case]
    differ = {
        name: found.get(name)
        for name in sorted(found.keys() | expected.keys())
        if found.get(name) != expected.get(name)
    }
    assert not differ, f"{section}, {case}: not as pinned: {json.dumps(differ)}"


def make_vocabularies(folder: pathlib.Path) -> dict[str, tuple[str, Vocabulary]]:
    """Return {name: (family, vocabulary)}, one of each kind, from given tokens.

    The SentencePiece models do not normalise, for the table of rules is the library's too.
    """
    described = json.loads((GOLDENS / "tokenizers.json").read_text(encoding="utf-8"))[
        "vocabularies"
    ]
    (folder / "vocab.txt").write_text(
        "\n".join(described["wordpiece"]["pieces"]) + "\n", encoding="utf-8"
    )
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    roberta = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, "Ġt", "Ġth", "he", "Ġthe", "<mask>"]
    gpt = ["<unk>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS), "th", "the</w>", "the"]
    pairs = {
        name: (described[name]["family"], make_sentencepiece(described[name]))
        for name in ("unigram", "bpe", "t5")
    }
    return pairs | {
        "wordpiece": ("bert", read_vocabulary(folder / "vocab.txt")),
        "byte_bpe": (
            "roberta",
            make_bpe(folder / "byte_bpe", roberta, ("Ġ t", "Ġt h", "h e", "Ġth e")),
        ),
        "word_bpe": ("openai-gpt", make_bpe(folder / "word_bpe", gpt, ("t h", "th e</w>", "th e"))),
        "tokenizer_json": ("gpt2", read_released(folder / "json", GOLDENS / "hf_gpt2")),
        "albert_json": ("albert", read_released(folder / "albert", GOLDENS / "hf_albert")),
    }


def make_sentencepiece(described: dict) -> SentencePieceVocabulary:
    """Return the vocabulary of the tokens, scores and types of a golden."""
    model = ModelProto()
    for piece, score, kind in described["pieces"]:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = described["type"]
    model.normalizer_spec.name = "identity"
    return SentencePieceVocabulary(
        model.SerializeToString(), appended=100 if described["family"] == "t5" else 0
    )


def make_bpe(folder: pathlib.Path, pieces: list[str], merges: tuple[str, ...]) -> Vocabulary:
    """Return the BPE of given tokens and merges."""
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    (folder / "merges.txt").write_text("\n".join(("#version: 0.2", *merges)) + "\n")
    return read_vocabulary(folder)


def read_released(folder: pathlib.Path, golden: pathlib.Path) -> Vocabulary:
    """Return the vocabulary of a golden Hugging Face folder."""
    folder.mkdir()
    for path in golden.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    return read_vocabulary(folder)
