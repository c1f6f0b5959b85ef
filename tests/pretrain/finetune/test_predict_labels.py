"""`predict` builds the rows of training, and the exported model gives the same result in
`transformers`.
"""

import dataclasses
import json

import numpy as np
import pytest
from etils import epath
from tokenizers import processors

from data.config import Data
from data.examples import labelled_store
from data.examples.labelled_examples import Example
from data.objectives import Classification, Regression
from data.pipeline import Stream
from data.vocabulary.tokenizer_json import read_tokenizer_json
from models.config.classifier import ClassifierConfig
from pretrain.config import Run
from pretrain.convert import find_model_type, tokenizer
from pretrain.convert.read_write import write_model
from pretrain.inference.tasks.predict_labels import LabelPredictor, shorten_pair
from pretrain.publish.cards.model_card import make_card
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.finetune.encoders import FRAMES, TEXT, draw_params, make_decoders, make_encoders

ENCODERS = make_encoders() | make_decoders()
ENCODERS |= {"bert_unrolled": dataclasses.replace(ENCODERS["bert"], scan=False)}
PAIRS = [(a, b) for a in TEXT for b in TEXT]
ALONE = [(text,) for text in TEXT]


def make_tuned(name, vocabularies, labels=("no", "maybe", "yes"), length=16):
    """Return a model with random parameters, none of them 0."""
    encoder, objective = ENCODERS[name], Classification if labels else Regression
    run = Run(
        model=ClassifierConfig(encoder=encoder, labels=labels),
        data=Data(
            objective=objective(length=length, **FRAMES.get(name, {})),
            batch_size=4,
        ),
    )
    return Trained("w", run, 7, draw_params(run), vocabularies.get(name, vocabularies["bert"]))


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "gpt2"])
@pytest.mark.parametrize("texts", [PAIRS, ALONE], ids=["pairs", "alone"])
def test_rows_are_those_of_the_exported_tokenizer(name, texts, vocabularies, tmp_path):
    trained = make_tuned(name, vocabularies)
    examples = [
        Example(text, trained.run.model.labels[i % 3], "here") for i, text in enumerate(texts)
    ]
    store = labelled_store.write_labelled(
        tmp_path / "store", trained.vocabulary, {"train": examples}, trained.run.model.labels
    )
    stream = Stream(store, dataclasses.replace(trained.run.data, batch_size=len(texts)))
    batch = stream.build_evaluation_batch(0)
    theirs = tokenizer.build_tokenizer(trained.vocabulary, find_model_type(trained.run.model), True)
    theirs.enable_truncation(16, strategy="longest_first")
    encodings = theirs.encode_batch([text if len(text) == 2 else text[0] for text in texts])
    for i, encoding in enumerate(encodings):
        count = int(batch["attention_mask"][i].sum())
        assert batch["token_ids"][i, :count].tolist() == encoding.ids
        if name not in ("roberta", "gpt2"):
            assert batch["token_type_ids"][i, :count].tolist() == encoding.type_ids
    assert (
        stream.table.num_truncated == sum(bool(encoding.overflowing) for encoding in encodings) > 0
    )


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
BYTE_LEVEL |= {"use_regex": True}


def make_first_alone(piece):
    """Return a post-processor that puts one special token in front of a text."""
    made = processors.TemplateProcessing(
        single=[piece, "$A"], pair=[piece, "$A", "$B:1"], special_tokens=[(piece, 2)]
    )
    return json.loads(made.__getstate__())


@pytest.mark.held_by(4)
@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "gpt", "gpt2"])
@pytest.mark.parametrize("post_processor", ["as_written", "byte_level", "first_alone", "none"])
def test_a_tokenizer_json_gets_the_frame_of_training(name, post_processor, vocabularies, tmp_path):
    """Whatever its own post-processor does, the rows are the labelled store's."""
    plain = vocabularies.get(name, vocabularies["bert"])
    family = find_model_type(ENCODERS[name])
    pipeline = tokenizer.build_tokenizer(plain, family)
    settings = json.loads(pipeline.to_str())
    first = plain.pieces[2]
    settings["post_processor"] = {
        "as_written": settings["post_processor"],
        "byte_level": BYTE_LEVEL,
        "first_alone": {"type": "Sequence", "processors": [BYTE_LEVEL, make_first_alone(first)]},
        "none": None,
    }[post_processor]
    roles = {role: plain.pieces[i] for role in tokenizer.ROLES if (i := getattr(plain, role))}
    vocabulary = read_tokenizer_json(json.dumps(settings), roles)
    assert vocabulary.kind == "tokenizer_json"
    for texts in (PAIRS, ALONE):
        trained = make_tuned(name, {name: vocabulary, "bert": vocabulary}, length=24)
        examples = [Example(text, "no", "here") for text in texts]
        folder = tmp_path / str(len(texts[0]))
        store = labelled_store.write_labelled(
            folder, vocabulary, {"train": examples}, trained.run.model.labels
        )
        data = dataclasses.replace(trained.run.data, batch_size=len(texts))
        batch = Stream(store, data).build_evaluation_batch(0)
        made = tokenizer.build_tokenizer(vocabulary, family, is_labelled=True)
        made.enable_truncation(24, strategy="longest_first")
        for i, text in enumerate(texts):
            count, encoding = int(batch["attention_mask"][i].sum()), made.encode(*text)
            assert batch["token_ids"][i, :count].tolist() == encoding.ids
            if name not in ("roberta", "gpt", "gpt2"):  # which read none
                assert batch["token_type_ids"][i, :count].tolist() == encoding.type_ids


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet"])
def test_long_pairs_are_shortened_before_they_are_cut(name, vocabularies):
    """The rows are the same. Of 600 words on both sides a tokenizer makes hundreds of rows."""
    trained = make_tuned(name, vocabularies)
    made = LabelPredictor(trained, 4).tokenizer
    words = " ".join(TEXT).split()
    long = [" ".join(words[i % len(words)] for i in range(start, start + 600)) for start in (0, 3)]
    for texts in (long, [long[0], TEXT[0]], [TEXT[1], long[1]], [long[0][:200], long[1]]):
        shortened = shorten_pair(made, tuple(texts), 16)
        encoding, expected = made.encode(*shortened), made.encode(*texts)
        assert encoding.ids == expected.ids and bool(encoding.overflowing)
    assert len(made.encode(*long).overflowing) > 300
    assert len(made.encode(*shorten_pair(made, tuple(long), 16)).overflowing) < 100


@pytest.mark.more
@pytest.mark.parametrize("name", ENCODERS)
def test_transformers_predicts_the_same(name, vocabularies, tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    for labels in (("no", "maybe", "yes"), ()):
        trained, folder = make_tuned(name, vocabularies, labels), tmp_path / f"{len(labels)}"
        write_model(folder, trained.run.model, trained.params, trained.vocabulary)
        model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, output_loading_info=True
        )
        assert not any(info.values()), info
        cut = dict(truncation=True, max_length=16, padding=True, return_tensors="pt")
        for texts in (PAIRS, ALONE):
            ids = transformers.AutoTokenizer.from_pretrained(folder)(*map(list, zip(*texts)), **cut)
            with torch.no_grad():
                logits = model.eval()(**ids).logits
            results = LabelPredictor(trained, 4)(texts, [None] * len(texts))
            if not labels:
                np.testing.assert_allclose(
                    [result["score"] for result in results], logits[:, 0], atol=1e-4
                )
                assert model.config.problem_type == "regression" and model.config.num_labels == 1
                continue
            log_probabilities = np.log(
                [[result["probabilities"][label] for label in labels] for result in results]
            )
            np.testing.assert_allclose(log_probabilities, torch.log_softmax(logits, -1), atol=1e-4)
            named = [model.config.id2label[i] for i in logits.argmax(-1).tolist()]
            assert named == [result["label"] for result in results]
    assert "texts are longer than a row of 16 tokens and were truncated" in capsys.readouterr().err


def test_the_model_card_describes_the_predictions(vocabularies, tmp_path):
    (tmp_path / "origin.json").write_text(
        json.dumps({"folder": "bert_mini", "pretrained_step": 7500})
    )
    trained = dataclasses.replace(
        make_tuned("bert", vocabularies), workdir=Workdir(epath.Path(tmp_path))
    )
    card = make_card(trained)
    assert "pipeline_tag: text-classification\n" in card
    assert "| labels | `no`, `maybe`, `yes` |" in card
    assert (
        "Fine-tuned with Cloze, for 7 steps, from step 7,500 of `bert_mini`." in card
        and "the labels of examples, rows of 16" in card
    )
    assert (
        "AutoModelForSequenceClassification.from_pretrained" in card
        and "knows no other task" in card
    )
    (tmp_path / "origin.json").write_text(
        json.dumps(
            {"folder": "bert_mini", "pretrained_step": 7500, "fresh": ["encoder/bert/pooler/bias"]}
        )
    )
    assert "on labelled examples alone, for 7 steps, from random parameters" in make_card(trained)
