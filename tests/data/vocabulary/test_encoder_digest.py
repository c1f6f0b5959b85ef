"""A vocabulary is recognized by what decides its ids besides its pieces: merges and scores."""

import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from data.prepare.build import prepare_store
from data.prepare.request import PrepareRequest
from data.store.reader import Store
from data.vocabulary.base import DESCRIPTION_FILE
from data.vocabulary.load import load_vocabulary, train_vocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json

TEXTS = ["the cat sat on the mat and the rat ate the hat that sat there"] * 30


@pytest.fixture
def byte_bpe(tmp_path):
    vocabulary = train_vocabulary(TEXTS, 275, "gpt2", "byte_bpe")
    vocabulary.save(tmp_path / "words")
    return vocabulary, tmp_path / "words"


def cut_merges(folder):
    lines = (folder / "merges.txt").read_text().splitlines()
    (folder / "merges.txt").write_text("\n".join(lines[:2]) + "\n")


def make_unigram(score, split=True):
    pieces = [("<unk>", 0.0), ("▁a", -1.0), ("b", -1.0), ("▁ab", score), ("a", -3.0), ("▁", -3.0)]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    return read_tokenizer_json(tokenizer.to_str())


def test_merges_and_scores_distinguish_vocabularies():
    assert make_unigram(-5.0) == make_unigram(-5.0)
    assert make_unigram(-5.0).encode("ab") != make_unigram(-0.5).encode("ab")
    assert make_unigram(-5.0) != make_unigram(-0.5)
    assert make_unigram(-5.0) != make_unigram(-5.0, split=False)


def test_both_ways_to_write_a_merge_are_one_vocabulary(byte_bpe):
    settings = json.loads(byte_bpe[0].to_json())
    pairs = settings["model"]["merges"]
    assert isinstance(pairs[0], list)
    settings["model"]["merges"] = [" ".join(pair) for pair in pairs]
    assert read_tokenizer_json(json.dumps(settings)) == read_tokenizer_json(byte_bpe[0].to_json())


def remove_keys(value, keys):
    """Return a JSON value without the keys that older versions of the library did not write."""
    if isinstance(value, dict):
        return {key: remove_keys(each, keys) for key, each in value.items() if key not in keys}
    return [remove_keys(each, keys) for each in value] if isinstance(value, list) else value


def test_a_file_that_the_library_saves_again_is_the_same_vocabulary(byte_bpe):
    """Versions of the library write other defaults, and null or "" for what is absent."""
    text = byte_bpe[0].to_json()
    new_keys = {"use_regex", "byte_fallback", "ignore_merges", "continuing_subword_prefix"}
    old = json.dumps(remove_keys(json.loads(text), new_keys))
    assert old != text
    again = json.loads(tokenizers.Tokenizer.from_str(old).to_str())
    again["model"]["end_of_word_suffix"] = ""
    special = {"id": 274, "content": "<|endoftext|>", "special": True, "normalized": False}
    again["added_tokens"] = [special | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)]
    found = [read_tokenizer_json(each) for each in (text, old, json.dumps(again))]
    assert found[0] == found[1] == found[2]
    no_regex = json.loads(text)
    no_regex["pre_tokenizer"]["use_regex"] = False
    assert read_tokenizer_json(json.dumps(no_regex)) != found[0]


def test_two_ways_to_write_a_blank_in_front_are_one_vocabulary():
    tokenizer = tokenizers.Tokenizer(models.Unigram([("<unk>", 0.0), ("▁a", -1.0)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    settings = json.loads(tokenizer.to_str())
    new = read_tokenizer_json(json.dumps(settings))
    old_step = {"type": "Metaspace", "replacement": "▁", "str_rep": "▁", "add_prefix_space": True}
    old = json.dumps(settings | {"pre_tokenizer": old_step})
    assert read_tokenizer_json(old) == new
    assert read_tokenizer_json(tokenizers.Tokenizer.from_str(old).to_str()) == new
    settings["pre_tokenizer"]["prepend_scheme"] = "never"
    assert read_tokenizer_json(json.dumps(settings)) != new


def test_a_folder_with_other_merges_is_refused(byte_bpe):
    vocabulary, folder = byte_bpe
    assert load_vocabulary(folder) == vocabulary
    cut_merges(folder)
    with pytest.raises(ValueError, match="words: its digest .* not the ones that were saved"):
        load_vocabulary(folder)


def test_a_folder_without_a_digest_is_loaded(byte_bpe):
    vocabulary, folder = byte_bpe
    description = json.loads((folder / DESCRIPTION_FILE).read_text())
    assert description.pop("encoder_digest") == vocabulary.encoder_digest
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description))
    assert load_vocabulary(folder) == vocabulary


def test_a_store_of_other_merges_is_not_the_same(byte_bpe, tmp_path):
    vocabulary, folder = byte_bpe
    (tmp_path / "corpus.txt").write_text("\n\n".join(TEXTS[:9]))
    request = PrepareRequest(
        (str(tmp_path / "corpus.txt"),), vocabulary=str(folder), held_out=0, document="block"
    )
    store = prepare_store(request, tmp_path / "store").store
    assert store.manifest["vocabulary"]["encoder_digest"] == vocabulary.encoder_digest
    assert prepare_store(request, tmp_path / "store").existed
    cut_merges(folder)
    (folder / DESCRIPTION_FILE).unlink()
    with pytest.raises(FileExistsError, match="encoder_digest: .* in the store, .* requested"):
        prepare_store(request, tmp_path / "store")
    # A manifest of an older version has no digest.
    path = tmp_path / "store" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["inputs"][-1]["encoder_digest"], manifest["vocabulary"]["encoder_digest"]
    path.write_text(json.dumps(manifest))
    assert prepare_store(request, tmp_path / "store").existed
    assert Store.open(tmp_path / "store").vocabulary == vocabulary
