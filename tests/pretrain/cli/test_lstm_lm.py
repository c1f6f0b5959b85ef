"""An LSTM by the verbs: what `predict`, `features` and `export` write, and what is refused."""

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import CausalLm
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.lstm_lm import LstmLmConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import ConfigError, Run, load
from pretrain.training.new_workdir import start_workdir

MODEL = LstmLmConfig(vocab=257, width=8, depth=2)
TEXTS = ("The prince", "A")


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(TEXTS, 257, layout="gpt2", algorithm="byte_bpe")


@pytest.fixture(scope="module")
def params(vocabulary):
    """Return random parameters of a model that writes small letters alone."""
    run = Run(model=MODEL, data=Data(objective=CausalLm(length=16)))
    random = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: 2 * random.standard_normal(leaf.shape, np.float32),
        jax.eval_shape(make_initializer(run)),
    )
    letters = [vocabulary.encode(letter)[0] for letter in "abcdefghijklmnopqrstuvwxyz"]
    params["lm_head"]["bias"] += np.where(np.isin(np.arange(257), letters), 0, -100)
    return params


@pytest.fixture
def workdir(vocabulary, params, tmp_path):
    run = Run(model=MODEL, data=Data(objective=CausalLm(length=16)))
    start_workdir(tmp_path / "w", run, params, vocabulary)
    return str(tmp_path / "w")


def test_a_continuation_is_that_of_the_whole_text(workdir, vocabulary, params, capsys):
    """Byte by byte, by calls on the text so far; prompts of two lengths share a batch."""
    assert main(["predict", "--workdir", workdir, *TEXTS, "--length", "5"]) == 0
    printed, model, written = capsys.readouterr().out, build(MODEL), set()
    for text in TEXTS:
        ids = vocabulary.encode(text)
        for _ in range(5):
            logits = model.apply({"params": params}, np.array([ids], np.int32))
            ids.append(int(logits[0, -1].argmax()))
        assert vocabulary.decode(ids).strip() in printed
        written.update(ids[-5:])
    assert len(written) > 2


def test_hidden_states_are_those_of_the_layers(workdir, vocabulary, params, tmp_path):
    (tmp_path / "in.txt").write_text(TEXTS[0])
    words = ["--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "f.npz")]
    words += ["--layers", "all", "--pooling", "none"]
    assert main(["features", "--workdir", workdir, *words]) == 0
    arrays, ids = np.load(tmp_path / "f.npz"), vocabulary.encode(TEXTS[0])
    table_VD = params["token_embedding"]["embedding"]
    np.testing.assert_allclose(arrays["layer_0"], table_VD[ids], atol=1e-6)
    expected = build(MODEL).apply(
        {"params": params}, np.array([ids], np.int32), method="compute_states"
    )
    np.testing.assert_allclose(arrays["layer_2"], expected[0], atol=1e-5)


def test_it_is_exported_with_its_code_or_as_a_program(workdir, tmp_path):
    words = ["export", "--workdir", workdir, "--output"]
    assert main([*words, str(tmp_path / "hf")]) == 0
    assert (tmp_path / "hf" / "modeling_lstm_lm.py").exists()
    assert main([*words, str(tmp_path / "jax"), "--format", "jax"]) == 0
    assert (tmp_path / "jax" / "program.bin").exists()


def test_attention_is_refused(workdir, tmp_path, capsys):
    output = tmp_path / "a.html"
    assert main(["attention", "--workdir", workdir, "a", "--output", str(output)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a LstmLmConfig has no attention. `features` has the hidden states" in line
    assert not output.exists()


def test_a_field_that_an_lstm_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="num_heads"):
        load("char_lstm", ["model.num_heads=4"])
