"""A folder as EuroBERT is released: Llama 3's byte-level BPE, whose begin and end of text frame rows,
with a mask token.
"""

import json

import pytest
import tokenizers
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Regex, models, pre_tokenizers, processors, trainers

from data.vocabulary.load import read_vocabulary
from models.config.eurobert import EuroBertConfig
from pretrain.api import export, import_folder
from pretrain.convert.pretrained import CONVERTERS
from tests.pretrain.convert.test_name_maps import random_params

BEGIN, END, MASK, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|pad|>"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a small model and a tokenizer of the released kind."""
    folder = tmp_path_factory.mktemp("released")
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["the king said that the other kings sang"] * 9, trainer)
    tokenizer.add_special_tokens([AddedToken(token) for token in (BEGIN, END, MASK, PAD)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}",
        pair=f"{BEGIN} $A {END} $B {END}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (BEGIN, END)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = dict(bos_token=BEGIN, eos_token=END, mask_token=MASK, pad_token=PAD)
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = EuroBertConfig(
        **dict(vocab=320, length=64, width=16, depth=2, num_heads=4, num_key_heads=2, mlp=24)
    )
    converter = CONVERTERS["eurobert"]
    described = converter.to_hf_config(config, read_vocabulary(folder))
    (folder / "config.json").write_text(json.dumps(described))
    save_file(converter.to_hf(config, random_params(config)), folder / "model.safetensors")
    return folder


def test_the_begin_and_end_of_text_frame_rows(folder):
    vocabulary = read_vocabulary(folder)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    roles = (vocabulary.cls, vocabulary.sep, vocabulary.pad, vocabulary.mask)
    assert roles == tuple(map(theirs.token_to_id, (BEGIN, END, PAD, MASK)))
    assert vocabulary.unk is None
    line = "The king's  12345 songs\t…"
    assert list(vocabulary.encode(line)) == theirs.encode(line, add_special_tokens=False).ids


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
    assert written["post_processor"]["single"] == given["post_processor"]["single"]
