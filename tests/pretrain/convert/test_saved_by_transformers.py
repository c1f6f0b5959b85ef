"""Folders that `transformers` saved, of models made there, compute the same after the import."""

import json

import numpy as np
import pytest

from data.vocabulary.load import load_vocabulary
from models import build
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert.read_write import open_model
from pretrain.convert.tokenizer import build_tokenizer, write_tokenizer
from tests.pretrain.finetune.encoders import trained_vocabularies

torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
pytestmark = pytest.mark.more
transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
transformers.utils.logging.disable_progress_bar()

SIZES = dict(vocab_size=72, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
ENCODER = dict(**SIZES, intermediate_size=24, max_position_embeddings=24)
GPT2 = dict(vocab_size=300, n_positions=24, n_embd=16, n_layer=2, n_head=2)


@pytest.fixture(scope="module")
def vocabularies():
    return trained_vocabularies()


def save_model(folder, model, vocabulary, family):
    """Save a model of transformers, and the files of a tokenizer."""
    model.save_pretrained(folder)
    write_tokenizer(vocabulary, family, folder)
    return model.eval()


def import_model(folder):
    """Return (model, parameters, run) of a folder; all its tensors are used."""
    opened = open_model(folder)
    run = make_starting_run(opened.config)
    params, _, unused = opened.load_params(run.model, make_initializer(run))
    assert unused == ()
    return build(run.model), params, run


def draw_ids(size):
    return np.random.default_rng(0).integers(5, size - 2, (2, 9)).astype(np.int32)


def test_a_discriminator_alone_scores_the_same(vocabularies, tmp_path):
    config = transformers.ElectraConfig(**ENCODER, embedding_size=8)
    theirs = save_model(
        tmp_path, transformers.ElectraForPreTraining(config), vocabularies["electra"], "electra"
    )
    model, params, _ = import_model(tmp_path)
    ids = draw_ids(72)
    found = model.apply({"params": params}, ids, np.ones_like(ids, bool), method="discriminate")
    with torch.no_grad():
        expected = theirs(torch.tensor(ids.astype(np.int64))).logits.numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu", "gelu_python", "gelu_pytorch_tanh"])
def test_an_activation_of_bert(activation, vocabularies, tmp_path):
    config = transformers.BertConfig(**ENCODER, hidden_act=activation)
    model = transformers.BertForPreTraining(config)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "intermediate" in name:  # so that the two forms of GELU differ
                tensor.mul_(40)
    theirs = save_model(tmp_path, model, vocabularies["bert"], "bert")
    if activation == "gelu_pytorch_tanh":  # BERT's is exact
        with pytest.raises(ValueError, match="hidden_act is 'gelu_pytorch_tanh'"):
            import_model(tmp_path)
        return
    model, params, _ = import_model(tmp_path)
    ids = draw_ids(72)
    words, _ = model.apply({"params": params}, ids, np.ones_like(ids, bool), np.zeros_like(ids))
    with torch.no_grad():
        expected = theirs(torch.tensor(ids.astype(np.int64))).prediction_logits.numpy()
    np.testing.assert_allclose(words, expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh"])
def test_an_activation_and_the_dropouts_of_gpt2(activation, vocabularies, tmp_path):
    config = transformers.GPT2Config(
        **GPT2, activation_function=activation, embd_pdrop=0.3, resid_pdrop=0.2, attn_pdrop=0.1
    )
    config.bos_token_id = config.eos_token_id = 2
    theirs = save_model(
        tmp_path, transformers.GPT2LMHeadModel(config), vocabularies["roberta"], "gpt2"
    )
    model, params, run = import_model(tmp_path)
    rates = run.model.embedding_dropout, run.model.dropout, run.model.attention_dropout
    assert rates == (0.3, 0.2, 0.1)
    ids = draw_ids(300)
    found = model.apply({"params": params}, ids)
    with torch.no_grad():
        expected = theirs(torch.tensor(ids.astype(np.int64))).logits.numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_tokenizers_settings_survive_import_workdir_and_export(vocabularies, tmp_path, capsys):
    """A space in front, and a word and a special token that a user added."""
    theirs, again = tmp_path / "theirs", tmp_path / "again"
    (tmp_path / "files").mkdir()
    for name, content in vocabularies["roberta"].export_files().items():
        (tmp_path / "files" / name).write_bytes(content)
    words = transformers.RobertaTokenizer.from_pretrained(tmp_path / "files", add_prefix_space=True)
    words.add_tokens(["Covid19"])
    words.add_special_tokens({"additional_special_tokens": ["<ent>"]})
    config = transformers.RobertaConfig(
        **ENCODER | {"vocab_size": len(words)}, type_vocab_size=1, pad_token_id=1
    )
    transformers.RobertaForMaskedLM(config).save_pretrained(theirs)
    words.save_pretrained(theirs)
    workdir = str(tmp_path / "w")
    assert main(["import", str(theirs), "--workdir", workdir]) == 0
    flags = ["--output", str(again), "--allow-random-head"]  # nobody saves RoBERTa's pooler
    assert main(["export", "--workdir", workdir, *flags]) == 0
    capsys.readouterr()
    texts = ["the Covid19 fox", "Covid19<ent>the  fox <pad>", " <unk> fox", "<ent>", ""]
    expected = transformers.AutoTokenizer.from_pretrained(theirs)(texts)["input_ids"]
    assert transformers.AutoTokenizer.from_pretrained(again)(texts)["input_ids"] == expected
    vocabulary = load_vocabulary(f"{workdir}/vocabulary")
    ours = build_tokenizer(vocabulary, "roberta")
    assert [encoding.ids for encoding in ours.encode_batch(texts)] == expected
    plain = texts[0]
    assert vocabulary.encode(plain) == expected[0][1:-1] == vocabulary.encode(" " + plain)
    assert vocabulary.pieces.index("Covid19") in vocabulary.encode(plain)
    assert vocabulary.special[vocabulary.pieces.index("<ent>")]
    assert not vocabulary.special[vocabulary.pieces.index("Covid19")]
    assert json.loads((again / "config.json").read_text())["vocab_size"] == len(words)
