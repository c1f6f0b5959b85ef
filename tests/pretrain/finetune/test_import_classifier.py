"""A fine-tuned folder of `transformers` becomes a run with the same predictions, which fine-tuning
continues.
"""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from data.config import Data
from data.objectives import Classification, Regression
from models.config.choice import ChoiceConfig
from models.config.classifier import ClassifierConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.config import Run
from pretrain.convert.read_write import open_model, write_model
from pretrain.finetune.encoders import find_encoder_config
from pretrain.finetune.start import make_initial_params
from pretrain.workdir.trained import open_trained
from tests.command import split_words
from tests.pretrain.finetune.encoders import FRAMES, TEXT, draw_params, make_decoders, make_encoders

DECODERS = make_decoders()
ENCODERS = make_encoders() | DECODERS
LABELS = ("no", "maybe", "yes")


@pytest.fixture(params=ENCODERS)
def exported(request, vocabularies, tmp_path):
    """Return (name of a family, configuration, parameters, vocabulary, their folder)."""
    # A decoder's config.json has no dropout of the head.
    dropout = 0.1 if request.param in DECODERS else 0.25
    model = ClassifierConfig(encoder=ENCODERS[request.param], labels=LABELS, dropout=dropout)
    params, vocabulary = draw_head_params(model), vocabularies[request.param]
    write_model(tmp_path / "theirs", model, params, vocabulary)
    return request.param, model, params, vocabulary, tmp_path / "theirs"


def draw_head_params(model):
    """Return random parameters, none of them 0."""
    objective = Classification if model.labels else Regression
    return draw_params(Run(model=model, data=Data(objective=objective(length=16))))


def import_params(folder):
    opened = open_model(folder)
    run = make_starting_run(opened.config)
    return run, *opened.load_params(run.model, make_initializer(run))


@pytest.mark.held_by(2)
def test_import_is_the_inverse_of_export(exported):
    name, model, params, vocabulary, folder = exported
    run, again, missing, unused = import_params(folder)
    assert (missing, unused) == ((), ()) and run.model.labels == LABELS
    assert run.model.dropout == model.dropout
    if name == "electra":  # the generator is not part of it
        assert all(
            getattr(run.model.encoder, field) == getattr(model.encoder, field)
            for field in ("embedding", "length", "width", "depth", "num_heads", "mlp")
        )
    else:
        assert run.model == model
    jax.tree.map(np.testing.assert_array_equal, params, again)
    length = 128 if name == "xlnet" else 24
    assert run.data.objective == Classification(length=length, **FRAMES.get(name, {}))
    assert run.evaluate.metrics == ("accuracy",)


@pytest.mark.more
def test_a_classifier_of_transformers_is_imported(exported, tmp_path):
    pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    name, model, params, vocabulary, folder = exported
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    theirs.save_pretrained(tmp_path / "saved")
    for file in folder.iterdir():
        if not (tmp_path / "saved" / file.name).exists():
            shutil.copy(file, tmp_path / "saved")
    run, again, missing, unused = import_params(tmp_path / "saved")
    assert (missing, unused) == ((), ()) and run.model.labels == LABELS
    assert run.model.dropout == model.dropout
    jax.tree.map(np.testing.assert_array_equal, params, again)


@pytest.mark.more
def test_it_predicts_as_transformers_and_continues_training(vocabularies, tmp_path, capsys):
    model = ClassifierConfig(
        encoder=dataclasses.replace(ENCODERS["bert"], dropout=0.0), labels=LABELS
    )
    write_model(tmp_path / "theirs", model, draw_head_params(model), vocabularies["bert"])
    w = str(tmp_path / "w")
    assert (
        main(
            split_words(
                f"import {tmp_path / 'theirs'} --workdir {w} data.objective.columns=a,b,is",
                "train.compute_dtype=float32",
            )
        )
        == 0
    )
    output = capsys.readouterr().out
    assert (
        "predicts no, maybe, yes from the columns a,b,is" in output
        and f"evaluate --workdir {w} --labelled FILE" in output
        and "prepare" not in output
    )
    rows = [{"a": a, "b": b, "is": "yes"} for a in TEXT for b in TEXT]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["predict", "--workdir", w, "--input", str(tmp_path / "dev.jsonl"), "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (
        main(["evaluate", "--workdir", w, "--labelled", str(tmp_path / "dev.jsonl"), "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["accuracy"] == np.mean(
        [one["label"] == "yes" for one in results]
    )
    trained = open_trained(w)
    assert find_encoder_config(trained) == trained.run.model.encoder
    same, new = make_initial_params(trained.run, trained, "head")
    assert new == []
    jax.tree.map(np.testing.assert_array_equal, same, trained.params)
    other = dataclasses.replace(
        trained.run, model=dataclasses.replace(trained.run.model, labels=("no", "yes"))
    )
    fresh, new = make_initial_params(other, trained, "head")
    assert new == ["classifier/out/bias", "classifier/out/kernel"] and fresh["classifier"]["out"][
        "kernel"
    ].shape == (16, 2)
    jax.tree.map(
        np.testing.assert_array_equal, fresh["encoder"], jax.device_get(trained.params["encoder"])
    )
    same, new = make_initial_params(
        dataclasses.replace(trained.run, model=dataclasses.replace(trained.run.model, dropout=0.5)),
        trained,
        "head",
    )
    assert new == [] and same["classifier"]["out"]["kernel"].shape == (16, 3)
    chooser = dataclasses.replace(
        trained,
        run=dataclasses.replace(
            trained.run, model=ChoiceConfig(encoder=find_encoder_config(trained))
        ),
    )  # a head of another kind
    assert make_initial_params(trained.run, chooser, "head")[1] == [
        "classifier/out/bias",
        "classifier/out/kernel",
    ]
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "theirs"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ids = tokenizer(
        [row["a"] for row in rows],
        [row["b"] for row in rows],
        truncation=True,
        max_length=24,
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        expected = torch.softmax(theirs(**ids).logits, -1)
    np.testing.assert_allclose(
        [[one["probabilities"][label] for label in LABELS] for one in results], expected, atol=1e-4
    )


def change_folder(folder, tensors, **settings):
    """Save the folder with changed tensors (a function of {name: array}) and changed settings in
    config.json, None to remove one.
    """
    from safetensors.numpy import load_file, save_file

    save_file(
        tensors(load_file(folder / "model.safetensors")),
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    described = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(
        json.dumps({key: value for key, value in described.items() if value is not None})
    )
    return folder


def test_a_folder_of_older_versions_is_read(vocabularies, tmp_path):
    """Names of 2018, an obsolete buffer, and settings without labels and the head's dropout."""
    model = ClassifierConfig(
        encoder=dataclasses.replace(ENCODERS["bert"], dropout=0.3),
        labels=("LABEL_0", "LABEL_1"),
        dropout=0.25,
    )
    write_model(tmp_path / "theirs", model, draw_head_params(model), vocabularies["bert"])

    def use_old_names(tensors):
        named = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): each
            for name, each in tensors.items()
        }
        return named | {"bert.embeddings.position_ids": np.arange(24)[None]}

    folder = change_folder(
        tmp_path / "theirs",
        use_old_names,
        id2label=None,
        label2id=None,
        problem_type=None,
        classifier_dropout=None,
    )
    run, params, missing, unused = import_params(folder)
    assert (
        run.model == dataclasses.replace(model, dropout=0.3)
        and missing == ()
        and unused == ("bert.embeddings.position_ids",)
    )
    jax.tree.map(np.testing.assert_array_equal, params, draw_head_params(model))


def test_one_label_is_a_score(vocabularies, tmp_path):
    model = ClassifierConfig(encoder=ENCODERS["bert"], labels=())
    write_model(tmp_path / "theirs", model, draw_head_params(model), vocabularies["bert"])
    run, *_ = import_params(change_folder(tmp_path / "theirs", dict, problem_type=None))
    assert (
        run.model == model
        and run.data.objective.name == "regression"
        and run.evaluate.metrics == ("pearson",)
    )


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (lambda each: {name: array for name, array in each.items() if not name.startswith("classifier.")},
         "missing .*classifier.weight"),
        (lambda each: each | {"bert.extra.weight": np.ones(2, np.float32)},
         "no place in the model for bert.extra.weight"),
    ],
)  # fmt: skip
def test_incomplete_classifiers_are_refused(vocabularies, tmp_path, tensors, message):
    model = ClassifierConfig(encoder=ENCODERS["bert"], labels=LABELS)
    write_model(tmp_path / "theirs", model, draw_head_params(model), vocabularies["bert"])
    with pytest.raises(ValueError, match=message):
        import_params(change_folder(tmp_path / "theirs", tensors))


def test_its_settings_must_make_sense(vocabularies, tmp_path):
    model = ClassifierConfig(encoder=ENCODERS["bert"], labels=())
    write_model(tmp_path / "theirs", model, draw_head_params(model), vocabularies["bert"])
    run, *_ = import_params(tmp_path / "theirs")
    assert run.model == model and isinstance(run.data.objective, Regression)
    path = tmp_path / "theirs" / "config.json"
    settings = json.loads(path.read_text())
    for changed, message in (
        ({"problem_type": "multi_label_classification"},
         "problem_type is 'multi_label_classification'; a row has one class"),
        ({"problem_type": None, "id2label": {"0": "a", "2": "b"}}, "id2label has the numbers 0, 2; expected 0 to 1"),
        ({"problem_type": None, "id2label": {"0": "a", "1": "a"}}, "there must be at least two, all different"),
        ({"problem_type": None, "id2label": {"0": "a", "1": "b"}},
         r"classifier.weight has shape \[1, 16\]; config.json makes it \[2, 16\]"),
    ):  # fmt: skip
        path.write_text(json.dumps(settings | changed))
        with pytest.raises(ValueError, match=message):
            import_params(tmp_path / "theirs")
