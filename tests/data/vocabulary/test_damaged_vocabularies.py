"""What the tokenizers library finds wrong late is an error of one line that names the file."""

import json

import pytest

from data.vocabulary.load import read_vocabulary, train_vocabulary
from data.vocabulary.sentencepiece_proto import ModelProto

TEXTS = [f"the fox {i} sees a dog" for i in range(300)]


def expect_line(folder, pattern):
    with pytest.raises(ValueError, match=pattern) as error:
        read_vocabulary(folder)
    assert len(str(error.value).splitlines()) == 1 and str(folder) in str(error.value)


@pytest.fixture
def byte_bpe_folder(tmp_path):
    train_vocabulary(TEXTS, 280, "gpt2", "byte_bpe").save(tmp_path)
    (tmp_path / "vocabulary.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    return tmp_path


def test_two_pieces_with_one_id(byte_bpe_folder):
    path = byte_bpe_folder / "vocab.json"
    vocab = json.loads(path.read_text())
    merges = (byte_bpe_folder / "merges.txt").read_text().splitlines()
    one, other = (line.replace(" ", "") for line in merges[-2:])
    vocab[one] = vocab[other]
    path.write_text(json.dumps(vocab))
    expect_line(byte_bpe_folder, "vocab.json: .*Token `.*` out of vocabulary")


def test_a_piece_with_a_carriage_return(byte_bpe_folder):
    path = byte_bpe_folder / "merges.txt"
    path.write_bytes(path.read_bytes() + b"\rx t\n")
    expect_line(byte_bpe_folder, "Token ` x` out of vocabulary")


def test_a_broken_map_of_characters(tmp_path):
    train_vocabulary(TEXTS, 40, "bert", "unigram").save(tmp_path)
    (tmp_path / "vocabulary.json").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "AlbertTokenizer"}')
    path = tmp_path / "spiece.model"
    model = ModelProto.FromString(path.read_bytes())
    charsmap = bytearray(model.normalizer_spec.precompiled_charsmap)
    charsmap[4 + int.from_bytes(charsmap[:4], "little")] = 0x80  # of the texts: not UTF-8
    model.normalizer_spec.precompiled_charsmap = bytes(charsmap)
    path.write_bytes(model.SerializeToString())
    expect_line(tmp_path, "spiece.model: the tokenizers library cannot read it")
