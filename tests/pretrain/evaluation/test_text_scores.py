"""Scores that do not depend on the vocabulary, and what is said of unknown tokens."""

import dataclasses
import json
import math

import pytest

from data.config import Data
from data.objectives import CausalLm, MaskedLm
from data.store.reader import Store
from data.vocabulary.load import train_vocabulary
from models.config.bert import BertConfig
from models.config.gpt2 import Gpt2Config
from pretrain.__main__ import main
from pretrain.training.new_workdir import start_workdir
from tests.data.vocabulary.test_characters import draw_words
from tests.pretrain.inference.test_in_context import make_trained

CONFIG = Gpt2Config(vocab=300, length=40, width=16, depth=1, num_heads=2, mlp=24)
BERT = BertConfig(vocab=300, length=40, width=16, depth=1, num_heads=2, mlp=24)
KNOWN = [text.replace("w", "é") for text in draw_words(150)]
# Of "東京 ☃" every token but the blanks' is unknown.
TEXTS = [f"{text} 東京 ☃" if i % 3 else text for i, text in enumerate(KNOWN)]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return (folder, the lines of held-out text) of a store with unknown characters."""
    folder = tmp_path_factory.mktemp("scores")
    (folder / "train.txt").write_text("\n".join(TEXTS[:100]))
    (folder / "valid.txt").write_text("\n".join(TEXTS[100:]))
    train_vocabulary(KNOWN, 300, layout="gpt").save(folder / "gpt")
    train_vocabulary(KNOWN, 300).save(folder / "bert")
    for name in ("gpt", "bert"):
        argv = ["prepare", str(folder / "train.txt"), "--validation", str(folder / "valid.txt")]
        argv += ["--document", "record", "--output", str(folder / f"{name}_store")]
        assert main([*argv, "--vocabulary", str(folder / name)]) == 0
    return folder


def write_run(folder, name, config, objective):
    """Write the workdir of an untrained model, and return its path."""
    trained = make_trained(config, 3, 110, layout="gpt", algorithm="bpe")
    store = Store.open(folder / f"{name}_store")
    data = Data(store=str(folder / f"{name}_store"), objective=objective, batch_size=8)
    run = dataclasses.replace(trained.run, data=data)
    if not (folder / f"{name}_run").exists():
        start_workdir(folder / f"{name}_run", run, trained.params, store.vocabulary)
    return str(folder / f"{name}_run")


def evaluate(workdir, capsys, *words):
    assert main(["evaluate", "--workdir", workdir, "--json", *words]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_bits_of_a_byte_and_perplexity_of_a_word(prepared, capsys):
    workdir = write_run(prepared, "gpt", CONFIG, CausalLm(length=20))
    scores, notices = evaluate(workdir, capsys)
    text = "".join(TEXTS[100:])
    nats = (
        scores["causal_lm"] * Store.open(prepared / "gpt_store").open_split("heldout").tokens.size
    )
    assert scores["bits_per_byte"] == pytest.approx(
        nats / math.log(2) / len(text.encode()), rel=1e-6
    )
    words = len(" ".join(TEXTS[100:]).split())
    assert scores["perplexity_per_word"] == pytest.approx(math.exp(nats / words), rel=1e-5)
    assert f"{scores['unknown']:.1%} of the tokens of the texts are unknown" in notices
    assert main(["evaluate", "--workdir", workdir]) == 0
    printed = capsys.readouterr().out
    for name in ("unknown", "bits_per_byte", "perplexity_per_word"):
        assert f"  {name:<27} {scores[name]:.5g}\n" in printed


def test_a_masked_model_is_scored_on_what_is_known(prepared, capsys):
    workdir = write_run(prepared, "bert", BERT, MaskedLm(length=20))
    scores, _ = evaluate(workdir, capsys)
    store = Store.open(prepared / "bert_store")
    tokens = store.open_split("heldout").tokens
    known = int((tokens != store.vocabulary.unk).sum())
    assert scores["unknown"] == pytest.approx(1 - known / tokens.size) and scores["unknown"] > 0.05
    num_bytes = sum(len(text.encode()) for text in TEXTS[100:])
    expected = scores["masked_lm"] * known / num_bytes / math.log(2)
    assert scores["bits_per_byte"] == pytest.approx(expected, rel=1e-6)


def test_a_store_of_an_earlier_version_has_its_bytes_estimated(prepared, capsys):
    workdir = write_run(prepared, "gpt", CONFIG, CausalLm(length=20))
    path = prepared / "gpt_store" / "manifest.json"
    before = path.read_text()
    new, _ = evaluate(workdir, capsys)
    for sizes in (None, {"heldout": {"bytes": "many", "words": -3}}):
        manifest = json.loads(before)
        del manifest["sizes"]
        if sizes:
            manifest["sizes"] = sizes
        path.write_text(json.dumps(manifest))
        try:
            scores, _ = evaluate(workdir, capsys)
        finally:
            path.write_text(before)
        assert "perplexity_per_word" not in scores
        if not sizes:
            assert scores["bits_per_byte"] == pytest.approx(new["bits_per_byte"], rel=0.05)


def test_text_without_blanks_has_no_words(tmp_path, capsys):
    letters = [chr(0x4E00 + i) for i in range(60)]
    texts = ["".join(letters[(i * j + j) % 60] for j in range(40)) for i in range(1, 80)]
    (tmp_path / "train.txt").write_text("\n".join(texts[:50]))
    (tmp_path / "valid.txt").write_text("\n".join(texts[50:]))
    train_vocabulary(texts, 120, layout="gpt").save(tmp_path / "gpt")
    argv = ["prepare", str(tmp_path / "train.txt"), "--validation", str(tmp_path / "valid.txt")]
    argv += ["--document", "record", "--output", str(tmp_path / "gpt_store")]
    assert main([*argv, "--vocabulary", str(tmp_path / "gpt")]) == 0
    workdir = write_run(tmp_path, "gpt", CONFIG, CausalLm(length=20))
    capsys.readouterr()
    scores, notices = evaluate(workdir, capsys)
    assert scores["unknown"] == 0 and "unknown" not in notices
    assert scores["bits_per_byte"] > 0 and "perplexity_per_word" not in scores


def test_predict_tells_of_unknown_texts(prepared, capsys):
    workdir = write_run(prepared, "gpt", CONFIG, CausalLm(length=20))
    line = "of the tokens of the texts are unknown to the vocabulary"
    assert main(["predict", "--workdir", workdir, "--length", "2", "東京 ☃", KNOWN[0]]) == 0
    assert line in capsys.readouterr().err
    assert main(["predict", "--workdir", workdir, "--length", "2", KNOWN[0]]) == 0
    assert line not in capsys.readouterr().err
