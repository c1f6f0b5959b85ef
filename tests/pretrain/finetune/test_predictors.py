"""Taggers and choosers give the same results in `transformers`, on every encoder."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from etils import epath

from data.config import Data
from data.examples.choice_questions import ChoiceQuestion
from data.objectives import MultipleChoice, Tagging
from models.config.choice import ChoiceConfig
from models.config.tagger import TaggerConfig
from pretrain.config import Run
from pretrain.convert.read_write import write_model
from pretrain.inference.tasks.predict_choices import ChoicePredictor
from pretrain.inference.tasks.predict_tags import TagPredictor
from pretrain.publish.cards.model_card import make_card
from pretrain.training.losses import find_loss
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.finetune.encoders import FRAMES, TEXT, draw_params, make_encoders

ENCODERS = make_encoders()
TAGS = ("O", "B-X", "I-X", "B-Y", "I-Y")
WORDS = [tuple(text.split()) for text in TEXT]
QUESTIONS = [ChoiceQuestion((first, *TEXT), tuple(TEXT)) for first in TEXT]


def make_tuned(name, model, objective, vocabularies):
    """Return a model with random parameters, none of them 0."""
    run = Run(model=model, data=Data(objective=objective, batch_size=4))
    return Trained("w", run, 7, draw_params(run), vocabularies[name])


def load_peer(trained, folder, auto):
    """Return (their model, their tokenizer) of an export."""
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    write_model(folder, trained.run.model, trained.params, trained.vocabulary)
    model, info = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.more
@pytest.mark.parametrize("name", ENCODERS)
def test_tags_are_those_of_transformers(name, vocabularies, tmp_path, capsys, monkeypatch):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    place = FRAMES[name] if name == "xlnet" else {}
    objective = Tagging(length=16, **place)
    trained = make_tuned(
        name, TaggerConfig(encoder=ENCODERS[name], labels=TAGS), objective, vocabularies
    )
    model, tokenizer = load_peer(trained, tmp_path / "w", "AutoModelForTokenClassification")
    assert model.config.id2label == dict(enumerate(TAGS))
    words = [
        [f"{' ' if i and name == 'roberta' else ''}{word}" for i, word in enumerate(sentence)]
        for sentence in WORDS
    ]
    ids = tokenizer(
        words,
        is_split_into_words=True,
        truncation=True,
        max_length=16,
        padding="max_length",
        return_tensors="pt",
    )
    with torch.no_grad():
        logits = model(**ids).logits.numpy()
    tags = TagPredictor(trained, 4)
    valid = ids["attention_mask"].bool().numpy()
    types = ids["token_type_ids"].numpy() if place else None
    ours = jax.jit(tags.model.apply)(
        {"params": trained.params}, ids["input_ids"].numpy().astype(np.int32), valid, types
    )
    np.testing.assert_allclose(np.asarray(ours)[valid], logits[valid], atol=1e-4)
    for row, result in enumerate(tags(WORDS, [None] * len(WORDS))):
        firsts = {}
        for at, word in enumerate(ids.word_ids(row)):
            if word is not None:
                firsts.setdefault(word, TAGS[logits[row, at].argmax()])
        assert result["tags"] == [firsts.get(i, "O") for i in range(len(WORDS[row]))]
        assert result.get("cut", False) == (row < 2)
    assert (
        "2 of 3 sentences are longer than a row of 16 tokens and were truncated"
        in capsys.readouterr().err
    )


def test_a_tagger_learns_with_the_token_types_of_its_batches():
    batch = dict.fromkeys(("token_ids", "attention_mask", "token_type_ids", "labels"))
    select = find_loss("tagging").select_inputs
    assert set(select(batch)) == batch.keys() - {"labels"}
    del batch["token_type_ids"]
    assert set(select(batch)) == {"token_ids", "attention_mask"}


@pytest.mark.more
@pytest.mark.parametrize("name", ENCODERS)
def test_choices_are_those_of_transformers(name, vocabularies, tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    objective = MultipleChoice(length=24, choices=3, **FRAMES.get(name, {}))
    trained = make_tuned(name, ChoiceConfig(encoder=ENCODERS[name]), objective, vocabularies)
    model, tokenizer = load_peer(trained, tmp_path / "w", "AutoModelForMultipleChoice")
    results = ChoicePredictor(trained, 4)(QUESTIONS, [None] * 3)
    for question, result in zip(QUESTIONS, results):
        first, *seconds = question.texts
        ids = tokenizer(
            [first] * 3, seconds, truncation=True, max_length=24, padding=True, return_tensors="pt"
        )
        with torch.no_grad():
            logits = model(**{key: array[None] for key, array in ids.items()}).logits[0]
        np.testing.assert_allclose(
            np.log(result["probabilities"]), torch.log_softmax(logits, -1), atol=1e-4
        )
        assert result["choice"] == TEXT[int(logits.argmax())] and result["number"] == int(
            logits.argmax()
        )


def test_the_model_card_describes_the_predictions(vocabularies, tmp_path):
    (tmp_path / "origin.json").write_text(
        json.dumps({"folder": "bert_mini", "pretrained_step": 7500})
    )
    tagger = make_tuned(
        "bert",
        TaggerConfig(encoder=ENCODERS["bert"], labels=TAGS),
        Tagging(length=16),
        vocabularies,
    )
    card = make_card(dataclasses.replace(tagger, workdir=Workdir(epath.Path(tmp_path))))
    assert (
        "pipeline_tag: token-classification\n" in card
        and "| labels | `O`, `B-X`, `I-X`, `B-Y`, `I-Y` |" in card
    )
    assert (
        "AutoModelForTokenClassification.from_pretrained" in card
        and "the tags of words, rows of 16" in card
    )
    chooser = make_tuned(
        "bert", ChoiceConfig(encoder=ENCODERS["bert"]), MultipleChoice(length=16), vocabularies
    )
    card = make_card(dataclasses.replace(chooser, workdir=Workdir(epath.Path(tmp_path))))
    assert (
        "pipeline_tag: multiple-choice\n" in card
        and "the right one of 4 choices, rows of 16" in card
        and "| choices | 4 in training" in card
    )
