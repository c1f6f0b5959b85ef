"""Vocabularies whose reading or encoding takes more than linear time, or has no end."""

import json
import shutil
import time

import pytest

from data.vocabulary.field_tokens import find_fields
from data.vocabulary.load import load_vocabulary, read_vocabulary, train_vocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json


@pytest.fixture
def folder(root, tmp_path):
    """Return folder(pattern, *pieces): GPT-2's golden vocabulary in both forms, split by a pattern
    and with more pieces.
    """

    def write_folder(pattern, *pieces):
        settings = json.loads((root / "tests/goldens/hf_gpt2/tokenizer.json").read_text())
        step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
        settings["pre_tokenizer"] = step | {"invert": False}
        vocab = settings["model"]["vocab"]
        vocab |= {piece: len(vocab) + i for i, piece in enumerate(pieces)}
        (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
        (tmp_path / "vocab.json").write_text(json.dumps(vocab))
        merges = settings["model"]["merges"]
        lines = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
        (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *lines, ""]))
        return tmp_path

    return write_folder


def test_a_text_on_which_the_library_gives_up_is_an_error(folder):
    vocabulary = read_vocabulary(folder("(?:x|x)" * 5 + "x*x[yz]w"))
    assert vocabulary.encode("xyz")
    text = "x" * 400_000 + "yz"  # the library's limit is ten million attempts
    for encode in (vocabulary.encode, lambda text: vocabulary.encode_with_offsets([text])):
        with pytest.raises(ValueError, match=r"1 text\(s\) of up to 400,002 characters: .*retry"):
            encode(text)


def test_two_forms_are_compared_without_long_pieces(folder):
    long = "x" * 30_000
    began = time.process_time()
    vocabulary = read_vocabulary(folder("x*x[yz]", long))
    assert vocabulary.pieces[-1] == long and time.process_time() - began < 2


def test_many_added_tokens_take_linear_time(root, tmp_path):
    shutil.copytree(root / "tests/goldens/hf_bert", tmp_path / "folder")
    tokens = {str(47 + i): {"content": f"<t{i}>", "special": i % 2 == 0} for i in range(10_000)}
    (tmp_path / "folder" / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "added_tokens_decoder": tokens})
    )
    began = time.process_time()
    vocabulary = read_vocabulary(tmp_path / "folder")
    assert time.process_time() - began < 2
    assert vocabulary.size == 10_047 and vocabulary.special[[47, 48]].tolist() == [True, False]


def test_many_tokens_of_fields_take_linear_time(root):
    settings = json.loads((root / "tests/goldens/hf_gpt2/tokenizer.json").read_text())
    vocab = settings["model"]["vocab"]
    names = [*(f"<|begin{i}|>" for i in range(20_000)), "<|end7|>"]
    vocab |= {piece: len(vocab) + i for i, piece in enumerate(names)}
    vocabulary = read_tokenizer_json(json.dumps(settings))
    began = time.process_time()
    fields = find_fields(vocabulary)
    assert fields == {"7": (vocab["<|begin7|>"], vocab["<|end7|>"])}
    assert time.process_time() - began < 1


@pytest.mark.parametrize("appended", [4_000_000_000, -1, "100", None, True])
def test_a_number_of_sentinels_out_of_bounds_is_refused(appended, tmp_path):
    texts = [f"the fox {i} sees a dog" for i in range(300)]
    train_vocabulary(texts, 137, "t5", "unigram").save(tmp_path)
    path = tmp_path / "vocabulary.json"
    description = json.loads(path.read_text())
    assert description["options"]["appended"] == 100
    description["options"]["appended"] = appended
    path.write_text(json.dumps(description))
    with pytest.raises(ValueError, match=f"vocabulary.json: appended is {appended!r}, not 0 to"):
        load_vocabulary(tmp_path)
