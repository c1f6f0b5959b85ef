"""A folder as DeBERTa-v3 is released: a discriminator that names no architecture, with a SentencePiece
model spm.model, to whose pieces a [MASK] is added.
"""

import io
import json

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import save_file

from data.vocabulary.load import read_vocabulary
from models.config.deberta_v3 import DebertaV3Config
from pretrain.convert.pretrained import CONVERTERS
from pretrain.convert.read_write import open_model
from pretrain.training.beginnings.given import open_given
from tests.models.test_deberta_v3 import RELEASED
from tests.pretrain.convert.test_name_maps import random_params

TEXT = ["The quick brown fox jumps over the lazy dog, isn't it? Café, naïve, 12 % of 3/4."] * 20
TEXT += ["Words before a gap and behind it tell what is left out.", "ﬁne Ａ ² №"] * 10
SIZES = dict(width=24, depth=2, generator_depth=1, num_heads=3, mlp=40, buckets=8, max_distance=20)
# What NFKC would change; blanks of all kinds; letters and marks apart; unknown characters.
PROBES = (
    "The lazy fox",
    "  two  blanks \n a line\tand a tab  ",
    "Cafe\u0301 na\u00efve",
    "ﬁne Ａ ² №",
    "isn't it? 12 %",
    "日本 fox \u200bx",
    "",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of the released form."""
    folder, model = tmp_path_factory.mktemp("released"), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=model, vocab_size=60, model_type="unigram",
        pad_id=0, pad_piece="[PAD]", bos_id=1, bos_piece="[CLS]", eos_id=2, eos_piece="[SEP]",
        unk_id=3, unk_piece="[UNK]", minloglevel=2,
    )  # fmt: skip
    (folder / "spm.model").write_bytes(model.getvalue())
    files = {
        "added_tokens.json": {"[MASK]": 60},
        "tokenizer_config.json": {"do_lower_case": False, "vocab_type": "spm"},
    }
    config = DebertaV3Config(vocab=95, **SIZES)
    tensors = {
        name: array
        for name, array in CONVERTERS["deberta-v2"].to_hf(config, random_params(config)).items()
        if not name.startswith("generator/")
    }
    tensors["lm_predictions.lm_head.bias"] = np.zeros(95, np.float32)
    tensors["deberta.embeddings.position_embeddings.weight"] = np.zeros((512, 24), np.float32)
    files["config.json"] = RELEASED | {
        **dict(vocab_size=95, hidden_size=24, num_hidden_layers=2, num_attention_heads=3),
        **dict(intermediate_size=40, position_buckets=8, max_relative_positions=20),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_run_begins_with_a_released_discriminator(folder):
    """Its generator is new but for the table; a folder without the head gets a new one, too."""
    given = open_given(str(folder))
    assert given.config == DebertaV3Config(vocab=95, **SIZES)
    assert given.encoding.pieces[60] == "[MASK]" and given.encoding.mask == 60
    assert (given.encoding.pad, given.encoding.cls, given.encoding.sep) == (0, 1, 2)
    assert {name.partition(".")[0] for name in given.missing} == {
        "generator/deberta",
        "generator/lm_predictions",
    }
    assert not given.params["token_delta"]["embedding"].any()
    head = random_params(given.config)["discriminator_head"]
    np.testing.assert_array_equal(
        given.params["discriminator_head"]["score"]["kernel"], head["score"]["kernel"]
    )


def test_a_generator_alone_is_refused(tmp_path):
    described = RELEASED | {"architectures": ["DebertaV2ForMaskedLM"]}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="a generator, .* the discriminator by transformers.Auto"):
        open_model(tmp_path)


@pytest.mark.more
def test_its_ids_are_those_of_transformers(folder):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    theirs = transformers.DebertaV2Tokenizer.from_pretrained(folder)
    vocabulary = read_vocabulary(folder)
    assert len(theirs) == vocabulary.size == 61
    for text in PROBES:
        assert vocabulary.encode(text) == theirs(text, add_special_tokens=False).input_ids, text
