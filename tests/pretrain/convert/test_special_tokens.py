"""An exported folder names the special tokens that training used, and an import finds the vocabulary
as it was.
"""

import json

import pytest

from data.vocabulary.load import read_vocabulary, train_vocabulary
from models.config.classifier import ClassifierConfig
from models.config.gpt import GptConfig
from models.config.gpt2 import Gpt2Config
from models.config.t5 import T5Config
from pretrain.api.importing import make_starting_run
from pretrain.convert.read_write import open_model, write_model
from pretrain.convert.tokenizer import ROLES
from tests.pretrain.finetune.encoders import TEXT, draw_params

SIZES = dict(length=24, width=16, depth=2, num_heads=2, mlp=64)
T5 = T5Config(vocab=170, width=16, depth=1, decoder_depth=1, num_heads=2, head_width=8, mlp=24)
# {case: (model, options of the vocabulary, {name of a token: role, or the first sentinel})}
CASES = {
    "hybrid": (
        Gpt2Config(vocab=290, **SIZES),
        dict(size=290, layout="roberta", algorithm="byte_bpe"),
        {"bos": "eos", "eos": "eos", "pad": "pad", "mask": "mask"},
    ),
    "gpt2": (
        Gpt2Config(vocab=290, **SIZES),
        dict(size=285, layout="gpt2", algorithm="byte_bpe"),
        {"bos": "eos", "eos": "eos", "pad": "eos", "mask": None},
    ),
    "gpt": (
        GptConfig(vocab=72, **SIZES),
        dict(size=70, layout="gpt", algorithm="bpe"),
        {"bos": "eos", "eos": "eos", "pad": "eos", "mask": None},
    ),
    "t5": (
        T5,
        dict(size=170, layout="t5", algorithm="bpe"),
        {"bos": None, "eos": "eos", "pad": "pad", "mask": "sentinel"},
    ),
}
TEXTS = ["The fox", "A word and another word, and so on."]


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    """Return (folder, model, vocabulary, {name: id}) of a case."""
    model, options, tokens = CASES[request.param]
    vocabulary = train_vocabulary(TEXT * 20, **options)
    ids = {role: getattr(vocabulary, role) for role in ("eos", "pad", "mask")}
    ids |= {"sentinel": vocabulary.sentinels[0] if vocabulary.sentinels else None, None: None}
    folder = tmp_path_factory.mktemp("exported") / "out"
    write_model(folder, model, draw_params(make_starting_run(model)), vocabulary)
    return folder, model, vocabulary, {name: ids[role] for name, role in tokens.items()}


def read_settings(folder):
    return [
        json.loads((folder / name).read_text())
        for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json")
    ]


@pytest.mark.held_by(2)
def test_the_folder_names_the_tokens_of_training(exported):
    folder, _, vocabulary, expected = exported
    config, *names = read_settings(folder)
    for name, token_id in expected.items():
        piece = None if token_id is None else vocabulary.pieces[token_id]
        assert [each.get(f"{name}_token") for each in names] == [piece] * 2
        assert config.get(f"{name}_token_id", token_id) == token_id
    assert config["pad_token_id"] == expected["pad"]


@pytest.mark.held_by(1)
def test_an_import_finds_the_vocabulary_as_it_was(exported):
    folder, _, vocabulary, _ = exported
    assert open_model(folder).vocabulary == vocabulary
    assert read_vocabulary(folder).fingerprint == vocabulary.fingerprint


@pytest.mark.held_by(4)
@pytest.mark.parametrize("found", ["pad", ["pad"], {"pad_token": 3}, {"other": None}])
def test_what_an_export_did_not_write_is_refused(exported, tmp_path, found):
    folder = exported[0]
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"stand_ins": found}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="tokenizer_config.json: stand_ins is"):
        read_vocabulary(tmp_path)


@pytest.mark.more
def test_transformers_pads_a_batch_and_gives_the_vocabulary_back(exported, tmp_path):
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    folder, model, vocabulary, expected = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = {name: getattr(tokenizer, f"{name}_token_id") for name in expected}
    assert found == expected and len(tokenizer) <= model.vocab
    batch = tokenizer(TEXTS, padding=True)
    short, long = batch["input_ids"]
    count = sum(batch["attention_mask"][0])
    assert len(short) == len(long) > count and set(short[count:]) == {expected["pad"]}
    tokenizer.save_pretrained(tmp_path)
    again = read_vocabulary(tmp_path)  # of tokenizer.json alone
    assert again.pieces == vocabulary.pieces
    assert [getattr(again, role) for role in ROLES] == [getattr(vocabulary, role) for role in ROLES]


@pytest.mark.more
def test_a_decoder_is_fine_tuned_by_transformers(exported):
    """It reads the last token that is no padding."""
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    folder, model, _, expected = exported
    if isinstance(model, T5Config):
        pytest.skip("an encoder-decoder")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    batch = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        assert theirs(**batch).logits.shape == (2, 2)
    assert theirs.config.pad_token_id == expected["pad"]


def test_a_fine_tuned_decoder_gives_its_vocabulary_back(tmp_path):
    model, options, _ = CASES["gpt2"]
    headed, vocabulary = ClassifierConfig(encoder=model), train_vocabulary(TEXT * 20, **options)
    write_model(tmp_path / "out", headed, draw_params(make_starting_run(headed)), vocabulary)
    config, names, _ = read_settings(tmp_path / "out")
    assert config["pad_token_id"] == vocabulary.eos
    assert names["pad_token"] == vocabulary.pieces[vocabulary.eos]
    assert open_model(tmp_path / "out").vocabulary == vocabulary
