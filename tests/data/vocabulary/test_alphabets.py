"""Alphabets have the ids of the tokenizers of `transformers`, and are saved and read."""

import json
import random

import numpy as np
import pytest

from data.vocabulary.letters.alphabets import ALPHABETS, make_alphabet, read_residues
from data.vocabulary.load import load_vocabulary, read_vocabulary
from pretrain.convert.tokenizer import build_tokenizer, write_tokenizer

LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"
ODD = [*LETTERS, *"JJjabc 1*é漢\t\n<>"]


def draw_texts(letters):
    rng = random.Random(0)
    return ["".join(rng.choices(letters, k=rng.randrange(30))) for _ in range(1000)]


@pytest.mark.parametrize("name", ALPHABETS)
def test_an_alphabet_is_saved_and_read(name, tmp_path):
    vocabulary = make_alphabet(name)
    vocabulary.save(tmp_path)
    again = load_vocabulary(tmp_path)
    assert again == vocabulary == read_vocabulary(f"alphabet:{name}")
    assert vocabulary.pieces == ALPHABETS[name]
    assert (vocabulary.cls, vocabulary.pad, vocabulary.sep, vocabulary.unk) == (0, 1, 2, 3)
    letters = [piece for piece in vocabulary.pieces if len(piece) == 1]
    ids = vocabulary.encode("".join(letters))
    assert [vocabulary.pieces[i] for i in ids] == letters and not vocabulary.special[ids].any()
    assert vocabulary.decode(ids) == "".join(letters)
    assert vocabulary.mask not in vocabulary.encode("A<mask>C")  # a name in a text is text


def test_what_is_unknown_is_one_token_a_run_or_a_letter():
    for name, expected in (("esm2", [5, 3, 3, 5]), ("esmc", [5, 3, 3, 3, 3, 5])):
        assert make_alphabet(name).encode("AJj 1A") == expected


@pytest.mark.parametrize("name", [*ALPHABETS, "3mers", "overlapping_3mers"])
def test_spans_and_texts_have_the_same_ids(name):
    """`prepare` encodes megabytes of bytes at once."""
    vocabulary = make_alphabet(name)
    for odd in (["A", "a", "J", " "], ODD):
        texts = [text.encode() for text in draw_texts([*"ACGT", *odd])]
        starts = np.cumsum([0, *(len(text) + 2 for text in texts)])[:-1]
        ends = starts + [len(text) for text in texts]
        ids, lengths = vocabulary.encode_spans(
            b"\n\n".join(texts), starts, ends, np.arange(len(starts))
        )
        found = [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
        assert found == [vocabulary.encode(text.decode()) for text in texts]
        assert ids.dtype == np.int32


def test_offsets_are_those_of_the_tokenizers_library():
    vocabulary = make_alphabet("esm2")
    made = build_tokenizer(vocabulary, "esm")
    for text in draw_texts([*ODD, "\x1c", "\x85", "\u2003", "\u3000"]):
        expected = made.encode(text, add_special_tokens=False)
        assert vocabulary.encode_with_offsets([text]) == [(expected.ids, expected.offsets)]


@pytest.mark.more
def test_ids_are_those_of_esm_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    vocabulary = make_alphabet("esm2")
    vocabulary.save(tmp_path)
    theirs = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    for text in draw_texts(ODD):
        assert vocabulary.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.more
def test_ids_are_those_of_esmc_tokenizer():
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    vocabulary, theirs = make_alphabet("esmc"), transformers.EsmcTokenizer()
    for text in draw_texts([*ODD, "|"]):
        assert vocabulary.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "family", "expected"),
    [
        ("esm2", "esm", "EsmTokenizer"),
        ("esmc", "esmc", "EsmcTokenizer"),
        ("3mers", "esm", "EsmTokenizer"),
    ],
)
def test_an_exported_alphabet_has_the_class_of_transformers(name, family, expected, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    vocabulary = make_alphabet(name)
    write_tokenizer(vocabulary, family, tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == expected
    assert theirs.mask_token_id == vocabulary.mask and theirs.pad_token_id == vocabulary.pad
    for text in draw_texts(LETTERS)[:100]:
        assert theirs(text)["input_ids"] == [
            *(vocabulary.cls, *vocabulary.encode(text), vocabulary.sep),
        ]
    assert read_vocabulary(tmp_path) == vocabulary


def test_a_folder_names_its_class(tmp_path):
    """Without it a vocab.txt is WordPiece, which such a file is not."""
    make_alphabet("nucleotides").save(tmp_path / "saved")
    (tmp_path / "vocab.txt").write_bytes((tmp_path / "saved" / "vocab.txt").read_bytes())
    settings = {"tokenizer_class": "EsmTokenizer", "eos_token": "<eos>", "cls_token": "<cls>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_vocabulary(tmp_path) == make_alphabet("nucleotides")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<unk>\nA\nC\nA\n", "'A' appears twice"),
        ("<unk>\nA\nC G\n", "'C G' is neither a letter, nor up to 8"),
        ("<unk>\nA\n\nC\n", "'' is neither a letter"),
        ("<cls>\nA\n", "there is no <unk>"),
        ("<cls>\n<unk>\n", "there is no letter, only special tokens"),
        ("<unk>\nACDEFGHIK\n", "'ACDEFGHIK' is neither a letter"),
        ("<unk>\n" + "A\n" * (1 << 17), "131,073 tokens; an alphabet has 131,072 at most"),
    ],
)
def test_what_is_no_alphabet_is_refused(text, message):
    with pytest.raises(ValueError, match=f"vocab.txt: {message}"):
        read_residues(text)


def test_an_unknown_alphabet_is_an_error():
    with pytest.raises(
        ValueError, match="alphabet 'esm3': one of esm2, esmc, nucleotides, .*smiles, or 2mers"
    ):
        read_vocabulary("alphabet:esm3")
