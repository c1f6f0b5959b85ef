"""Causal decoders learn to classify and to choose, from a pretrained workdir."""

import dataclasses
import json
import pathlib
import re

import jax
import numpy as np
import pytest

from data.config import Data
from data.examples.choice_questions import ChoiceQuestion
from data.objectives import CausalLm
from data.vocabulary.load import train_vocabulary
from models import build
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from models.config.gpt2 import Gpt2Config
from models.config.lstm_lm import LstmLmConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer
from pretrain.config import Run
from pretrain.convert.read_write import write_model
from pretrain.families import FAMILIES
from pretrain.finetune.encoders import make_head_objective
from pretrain.finetune.later_export import describe_refusal
from pretrain.inference.tasks.predict_choices import ChoicePredictor
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.finetune.encoders import draw_params, make_decoders, make_encoders
from tests.pretrain.workdirs import write_json_lines

WORDS = "the a fox dog river stone runs sees near old".split()
DECODERS = {
    "gpt2": Gpt2Config(vocab=280, length=16, width=32, depth=2, num_heads=2, mlp=64, dropout=0.0),
    "lstm_lm": LstmLmConfig(vocab=280, width=32, depth=1, dropout=0.0),
}


def make_examples(count, seed):
    """Return pairs of texts, with whether the first one mentions a fox."""
    rng = np.random.default_rng(seed)
    texts = [[" ".join(rng.choice(WORDS, 2)) for _ in range(2)] for _ in range(count)]
    return [
        {"text": a, "text2": b, "label": "fox" if "fox" in a.split() else "none"} for a, b in texts
    ]


@pytest.fixture(scope="module", params=DECODERS)
def tuned(request, tmp_path_factory):
    """Return (workdir of a classifier of pairs, held-out file)."""
    folder, model = tmp_path_factory.mktemp("decoder"), DECODERS[request.param]
    run = Run(model=model, data=Data(objective=CausalLm(length=16)))
    texts = [f"{each['text']} {each['text2']}" for each in make_examples(100, 2)]
    vocabulary = train_vocabulary(texts, 275, layout="gpt2", algorithm="byte_bpe")
    start_workdir(folder / "w", run, jax.jit(make_initializer(run))(), vocabulary)
    train = write_json_lines(folder / "train.jsonl", make_examples(256, 0))
    dev = write_json_lines(folder / "dev.jsonl", make_examples(64, 1))
    task = ["--task", "classification", "--train", train, "--heldout", dev]
    settings = ["data.batch_size=32", "data.objective.length=14", "data.threads=1"]
    settings += ["optimizer.learning_rate=1e-2", "train.compute_dtype=float32"]
    command = ["finetune", "--from", str(folder / "w"), *task, "--workdir", str(folder / "c")]
    assert main([*command, "--epochs", "8", *settings]) == 0
    return folder / "c", dev


@pytest.mark.held_by(1)
def test_a_decoder_learns_to_classify(tuned, tmp_path, capsys):
    workdir, dev = tuned
    objective = Workdir.open(workdir).run.data.objective
    assert (objective.name, objective.cls_position) == ("classification", "none")
    assert main(["evaluate", "--workdir", str(workdir), "--labelled", dev, "--json"]) == 0
    accuracy = json.loads(capsys.readouterr().out)["accuracy"]
    assert accuracy > 0.95
    assert main(["predict", "--workdir", str(workdir), "--input", dev, "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    labels = [json.loads(line)["label"] for line in pathlib.Path(dev).read_text().splitlines()]
    assert np.mean([one["label"] == each for one, each in zip(results, labels)]) == accuracy
    assert main(["inspect", str(workdir / "config.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"]
    command = ["export", "--workdir", str(workdir), "--format", "jax"]
    assert main([*command, "--output", str(tmp_path / "jax")]) == 0


@pytest.mark.held_by(1)
def test_rows_that_the_vocabulary_lacks_leave_nothing_behind(tuned, tmp_path, capsys):
    """With a [CLS], which a GPT's vocabulary does not have."""
    workdir, dev = tuned
    start = ["finetune", "--from", str(workdir.parent / "w"), "--workdir", str(tmp_path / "c")]
    task = ["--task", "classification", "--train", dev, "data.objective.cls_position=first"]
    assert main([*start, *task]) == 2
    assert "needs the special token(s) cls, sep, pad" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_decoder_that_chooses_has_no_class_in_transformers(vocabularies, tmp_path):
    model = ChoiceConfig(encoder=make_decoders()["gpt2"])
    params = draw_params(Run(model=model, data=Data(objective=make_head_objective(model))))
    with pytest.raises(ValueError, match="transformers has no GPT2ForMultipleChoice"):
        write_model(tmp_path / "out", model, params, vocabularies["gpt2"])
    assert not (tmp_path / "out").exists()


def test_a_run_is_checked_for_export_before_it_begins(vocabularies, monkeypatch):
    """What its class, its sizes, its vocabulary or its map of names lacks; without any weight."""
    decoder, words = make_decoders()["gpt2"], vocabularies["gpt2"]

    def describe(model, vocabulary=words):
        objective = make_head_objective(model)
        return describe_refusal(Run(model=model, data=Data(objective=objective)), vocabulary)

    assert describe(ClassifierConfig(encoder=decoder)) is None
    line = describe(ChoiceConfig(encoder=decoder))
    assert re.fullmatch(".* no GPT2ForMultipleChoice: .* `export --format jax` writes .*", line)
    narrow = dataclasses.replace(make_decoders()["gpt"], mlp=24)
    line = describe(ClassifierConfig(encoder=narrow), vocabularies["gpt"])
    assert "model.mlp=24" in line and line.count("`export --format jax`") == 1
    line = describe(ClassifierConfig(encoder=make_encoders()["bert"]))
    assert "a bert tokenizer needs" in line
    family = FAMILIES["gpt2"]
    broken = dataclasses.replace(family.hugging_face.head_map, rules={})  # a map with a bias
    hf_map = dataclasses.replace(family.hugging_face, head_map=broken)
    family = dataclasses.replace(family, hugging_face=hf_map)
    monkeypatch.setattr("pretrain.families.gpt2.FAMILY", family)
    assert "classifier/out/bias missing" in describe(ClassifierConfig(encoder=decoder))


def test_choices_are_scored_at_their_last_token(vocabularies, tmp_path):
    """The rows of a question, and the probabilities of `predict`, by the model itself."""
    model = ChoiceConfig(encoder=make_decoders()["gpt2"])
    run = Run(model=model, data=Data(objective=make_head_objective(model)))
    trained = Trained("w", run, 1, draw_params(run), vocabularies["gpt2"])
    texts = ("The fox", "and the dog.", "A word and another word")
    question = ChoiceQuestion(texts, texts[1:])
    (found,) = ChoicePredictor(trained, 2)([question], [None])
    ids = [trained.vocabulary.encode(text) for text in texts]
    rows = [[*ids[0], trained.vocabulary.eos, *choice] for choice in ids[1:]]
    body = trained.params["encoder"]
    states = [
        build(model.encoder).apply({"params": body}, np.array([row]), method="compute_states")
        for row in rows
    ]
    scores = [x[0, -1] @ trained.params["classifier"]["out"]["kernel"][:, 0] for x in states]
    np.testing.assert_allclose(found["probabilities"], jax.nn.softmax(np.array(scores)), atol=1e-5)
