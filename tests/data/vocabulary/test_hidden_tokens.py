"""No text is read as a special token, whatever characters are in it."""

import numpy as np
import pytest
import tokenizers

from data.prepare.build import prepare_store
from data.prepare.request import PrepareRequest
from data.vocabulary.load import train_vocabulary
from data.vocabulary.tokenizer_json import read_tokenizer_json

TEXT = "hi \ufdd10 there"


@pytest.fixture
def vocabulary():
    trained = train_vocabulary(["the cat sat on the mat"] * 30, 262, "gpt2", "byte_bpe")
    tokenizer = tokenizers.Tokenizer.from_str(trained.to_json())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens([tokenizers.AddedToken("<|endoftext|>", special=True)])
    return read_tokenizer_json(tokenizer.to_str())


def test_a_text_with_the_name_of_a_hidden_token(vocabulary):
    expected = vocabulary.encode(TEXT.replace("\ufdd1", "\ufffd"))
    assert vocabulary.eos not in expected
    assert vocabulary.encode_batch([TEXT, "a"])[0] == expected
    ids, offsets = vocabulary.encode_with_offsets([TEXT])[0]
    assert ids == expected and offsets[-1][1] == len(TEXT)
    raw = f"{TEXT} {TEXT}".encode()
    starts, ends = np.array([0, len(raw) // 2]), np.array([len(raw) // 2, len(raw)])
    ids, lengths = vocabulary.encode_spans(raw, starts, ends, np.array([0]))
    assert vocabulary.eos not in ids.tolist() and lengths.sum() == len(ids)
    assert ids[: lengths[0]].tolist() == expected


def test_prepare_counts_the_replaced_character(vocabulary, tmp_path):
    vocabulary.save(tmp_path / "words")
    path = tmp_path / "a.txt"
    path.write_text(f"{TEXT}\nhi there\n")
    request = PrepareRequest(
        (str(path),), vocabulary=str(tmp_path / "words"), held_out=0, document="record"
    )
    store = prepare_store(request, tmp_path / "store").store
    assert store.manifest["noted"] == {
        "documents with U+FDD1, which no text may hold (replaced by U+FFFD)": {
            "count": 1,
            "first": f"{path}, 1",
        },
    }
    assert vocabulary.eos not in np.asarray(store.open_split("train").tokens).tolist()
