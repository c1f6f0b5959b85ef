"""A folder as ModernBERT is released: a byte-level BPE in `tokenizer.json` alone, with [CLS] and [SEP],
NFC, and runs of blanks as added tokens.
"""

import json
import random

import pytest
import tokenizers
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors, trainers

from data.vocabulary.load import read_vocabulary
from models.config.modernbert import ModernBertConfig
from pretrain.api import export, import_folder
from pretrain.convert.pretrained import CONVERTERS
from tests.pretrain.convert.test_name_maps import random_params

ROLES = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
# Pieces of odd lines: blanks, composed and decomposed letters, scripts, controls, added tokens.
ODD = (
    *("Hello", " a", "The", "don't", "'S", "KING", "1234567", "---", "a" * 40),
    *("  ", "    ", "\t", "\n", "\r", "  x", "  " * 9, "\u00a0", "\u2028", "\u200d", "\ufeff"),
    *("é", "e\u0301", "你好", "ﬁ", "😀", "…", "Ω", "ß", "|||EMAIL_ADDRESS|||", "[unused3]"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a small model and a tokenizer of the released kind."""
    folder = tmp_path_factory.mktemp("released")
    tokenizer = make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {name.strip("[]").lower() + "_token": name for name in ROLES}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    vocabulary = read_vocabulary(folder)
    config = ModernBertConfig(vocab=448, length=64, width=16, depth=5, num_heads=2, mlp=24)
    converter = CONVERTERS["modernbert"]
    (folder / "config.json").write_text(json.dumps(converter.to_hf_config(config, vocabulary)))
    save_file(converter.to_hf(config, random_params(config)), folder / "model.safetensors")
    return folder


def make_tokenizer():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|padding|>"], initial_alphabet=alphabet
    )
    tokenizer.train_from_iterator(["the king said that the other kings sang"] * 9, trainer)
    blanks = [AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)]
    tokenizer.add_tokens([*blanks, AddedToken("|||EMAIL_ADDRESS|||", normalized=True)])
    tokenizer.add_special_tokens([AddedToken(role, lstrip=role == "[MASK]") for role in ROLES])
    tokenizer.add_tokens([AddedToken(f"[unused{i}]", normalized=True) for i in range(8)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(role, tokenizer.token_to_id(role)) for role in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def test_ids_of_odd_lines_are_the_tokenizers(folder):
    vocabulary, draw = read_vocabulary(folder), random.Random(0)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for _ in range(1000):
        line = "".join(draw.choices(ODD, k=draw.randint(1, 14)))
        found = list(vocabulary.encode(line))
        assert found == theirs.encode(line, add_special_tokens=False).ids, repr(line)
    roles = (vocabulary.cls, vocabulary.sep, vocabulary.pad, vocabulary.mask)
    assert roles == tuple(map(theirs.token_to_id, ("[CLS]", "[SEP]", "[PAD]", "[MASK]")))


@pytest.mark.slow
def test_an_import_is_exported_as_it_came(folder, tmp_path):
    workdir, output = tmp_path / "run", tmp_path / "export"
    import_folder(folder, workdir=workdir)
    export(workdir, output)
    before, after = (load_file(path / "model.safetensors") for path in (folder, output))
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)
    given, written = (
        json.loads((path / "tokenizer.json").read_text()) for path in (folder, output)
    )
    for part in ("model", "normalizer", "pre_tokenizer", "added_tokens"):
        assert written[part] == given[part], part
