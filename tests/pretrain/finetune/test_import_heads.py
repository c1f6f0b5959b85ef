"""Taggers, span readers and models that choose, fine-tuned by `transformers`, are imported with
their heads.
"""

import dataclasses
import json
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data.config import Data
from models import build
from models.config.choice import ChoiceConfig
from models.config.span_reader import SpanReaderConfig
from models.config.tagger import TaggerConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.config import Run
from pretrain.convert.read_write import open_model, write_model
from pretrain.finetune.encoders import find_encoder_config, make_head_objective
from pretrain.workdir.trained import open_trained
from tests.pretrain.finetune.encoders import draw_params, make_encoders

ENCODERS = make_encoders()
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
HEADS = {
    "tags": lambda encoder: TaggerConfig(encoder=encoder, labels=TAGS, dropout=0.25),
    "spans": lambda encoder: SpanReaderConfig(encoder=encoder),
    "choices": lambda encoder: ChoiceConfig(encoder=encoder, dropout=0.25),
}
SUFFIXES = {
    "tags": "TokenClassification",
    "spans": "QuestionAnswering",
    "choices": "MultipleChoice",
}
OBJECTIVES = {"tags": "tagging", "spans": "answer_span", "choices": "multiple_choice"}


def make_model(name, kind):
    """(configuration, parameters with values everywhere)"""
    model = HEADS[kind](ENCODERS[name])
    if name == "distilbert" and kind == "spans":
        model = dataclasses.replace(model, dropout=0.3)  # the one family with a dropout there
    return model, draw_params(Run(model=model, data=Data(objective=make_head_objective(model))))


@pytest.fixture(params=[(name, kind) for kind in HEADS for name in ENCODERS], ids="-".join)
def exported(request, vocabularies, tmp_path):
    """(name of a family, kind of a head, configuration, parameters, their folder)."""
    name, kind = request.param
    model, params = make_model(name, kind)
    write_model(tmp_path / "theirs", model, params, vocabularies[name])
    return name, kind, model, params, tmp_path / "theirs"


def import_params(folder):
    opened = open_model(folder)
    run = make_starting_run(opened.config)
    return opened, run, *opened.load_params(run.model, make_initializer(run))


def read_all(folder):
    """{file: content}"""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.held_by(3)
def test_import_is_the_inverse_of_export(exported, tmp_path):
    name, kind, model, params, folder = exported
    opened, run, again, missing, unused = import_params(folder)
    pooler = {"bert": "bert.pooler.dense", "roberta": "roberta.pooler.dense"} | {
        "albert": "albert.pooler"
    }
    expected = pooler.get(name) if kind != "choices" else None
    assert {tensor.rpartition(".")[0] for tensor in missing} == ({expected} - {None})
    assert unused == () and type(run.model) is type(model)
    if name == "electra":  # whose generator is no part of it
        model = dataclasses.replace(
            model,
            encoder=dataclasses.replace(run.model.encoder, width=16, depth=2, num_heads=2, mlp=24),
        )
    assert run.model == model and run.data.objective.name == OBJECTIVES[kind]
    assert run.data.objective.cls_position == ("last" if name == "xlnet" else "first")
    leaves = zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(again), strict=True)
    for (keys, before), after in leaves:
        path = jax.tree_util.keystr(keys)
        if not (expected and "pooler" in path):  # which nobody saves, and which is random
            np.testing.assert_array_equal(before, after, path)
    write_model(tmp_path / "again", run.model, again, opened.vocabulary)
    ours, theirs = read_all(tmp_path / "again"), read_all(folder)
    assert ours.keys() == theirs.keys()
    assert [file for file in ours if ours[file] != theirs[file]] == []


def make_inputs(kind):
    """ids, mask of real tokens, token types: [2, 7], or [2, 3, 7] for choices."""
    rng = np.random.default_rng(0)
    shape = (2, 3, 7) if kind == "choices" else (2, 7)
    valid = np.broadcast_to(
        np.arange(7) < np.array([7, 5]).reshape(2, *[1] * (len(shape) - 1)), shape
    )
    ids = np.where(valid, rng.integers(5, 70, shape), 0).astype(np.int32)
    return ids, valid.copy(), (valid & (np.arange(7) > 3)).astype(np.int32)


@pytest.mark.more
def test_what_transformers_saved_computes_the_same_and_is_given_back(exported, tmp_path):
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    name, kind, _, _, folder = exported
    auto = getattr(transformers, f"AutoModelFor{SUFFIXES[kind]}")
    theirs = auto.from_pretrained(folder).eval()
    saved = tmp_path / "saved"
    theirs.save_pretrained(saved)
    for file in folder.iterdir():
        if not (saved / file.name).exists():
            shutil.copy(file, saved)
    opened, run, params, _, unused = import_params(saved)
    assert unused == ()
    ids, valid, types = make_inputs(kind)
    if name == "roberta":
        ids = np.where(valid, ids, 1)  # its padding, before which its positions begin
        types = types * 0
    arrays = (ids, valid, types)
    if name == "xlnet":  # of which transformers reads the last position: padded on the left
        order = np.argsort(valid, axis=-1, kind="stable")
        arrays = [np.take_along_axis(array, order, axis=-1) for array in arrays]
    inputs = dict(zip(("input_ids", "attention_mask", "token_type_ids"), arrays, strict=True))
    if name == "distilbert":
        del inputs["token_type_ids"]
    with torch.no_grad():
        output = theirs(
            **{key: torch.tensor(array.astype(np.int64)) for key, array in inputs.items()}
        )
    expected = (
        torch.stack([output.start_logits, output.end_logits], -1)
        if kind == "spans"
        else output.logits
    ).numpy()
    found = np.asarray(build(run.model).apply({"params": params}, ids, valid, types))
    if kind != "choices":
        found, expected = found[valid], expected[arrays[1]]
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-4)
    write_model(tmp_path / "again", run.model, params, opened.vocabulary)
    before, after = (load_file(path / "model.safetensors") for path in (saved, tmp_path / "again"))
    assert before.keys() == after.keys()
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)


def test_a_fine_tuned_xlnet_has_no_memory(vocabularies, tmp_path):
    model, params = make_model("xlnet", "tags")
    write_model(tmp_path / "theirs", model, params, vocabularies["xlnet"])
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"mem_len": 512}))
    _, run, *_ = import_params(tmp_path / "theirs")
    assert run.model == model and model.encoder.memory is None
    with_memory = dataclasses.replace(ENCODERS["xlnet"], memory=9)
    pretrained = SimpleNamespace(run=SimpleNamespace(model=with_memory))
    assert find_encoder_config(pretrained) == ENCODERS["xlnet"]


# ---- as a user -----------------------------------------------------------------------------------

ANSWERS = {"text": ["reader"], "answer_start": [4]}
EXAMPLES = {
    "tags": [{"words": ["The", "fox", "reads"], "tags": ["O", "B-PER", "O"]}] * 3,
    "spans": [{"id": str(i), "question": "Who reads?", "context": "the reader", "answers": ANSWERS} for i in range(3)],
    "choices": [{"question": "the text", "choices": ["the fox", "a word", "No."], "label": i} for i in range(3)],
}  # fmt: skip
SUMMARIES = {
    "tags": "predicts the tags O, B-PER, I-PER, B-LOC, I-LOC, of the scheme bio",
    "spans": "add model.unanswerable=true",
    "choices": "3 in `evaluate`",
}
SCORES = {"tags": "tag_accuracy", "spans": "exact_match", "choices": "accuracy"}


@pytest.mark.held_by(1)
@pytest.mark.parametrize("kind", HEADS)
def test_imported_it_predicts_and_is_evaluated(kind, vocabularies, tmp_path, capsys):
    model, params = make_model("bert", kind)
    write_model(tmp_path / "theirs", model, params, vocabularies["bert"])
    w, file = str(tmp_path / "w"), tmp_path / "dev.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in EXAMPLES[kind]))
    words = ["train.compute_dtype=float32"]
    words += ["data.objective.choices=3"] if kind == "choices" else []
    words += (
        ["data.objective.length=20", "data.objective.stride=2", "data.objective.question=8"]
        if kind == "spans"
        else []
    )
    assert main(["import", str(tmp_path / "theirs"), "--workdir", w, *words]) == 0
    output = capsys.readouterr().out
    assert SUMMARIES[kind] in output and f"evaluate --workdir {w} --labelled FILE" in output
    # The pooler, which such a model does not read, is no reason to refuse.
    assert main(["predict", "--workdir", w, "--input", str(file), "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["evaluate", "--workdir", w, "--labelled", str(file), "--json"]) == 0
    score = json.loads(capsys.readouterr().out)[SCORES[kind]]
    found = {
        "tags": lambda: np.mean(
            [
                a == b
                for row, each in zip(EXAMPLES[kind], results, strict=True)
                for a, b in zip(row["tags"], each["tags"], strict=True)
            ]
        ),
        "spans": lambda: 100 * np.mean([each["answer"] == "reader" for each in results]),
        "choices": lambda: np.mean([each["number"] == i for i, each in enumerate(results)]),
    }[kind]()
    assert score in (pytest.approx(found), pytest.approx(found / 100))
    assert main(["export", "--workdir", w, "--output", str(tmp_path / "out")]) == 0
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "out"))
    assert before.keys() == after.keys()
    assert all(before[key].tobytes() == after[key].tobytes() for key in before)
    assert "missing tensors" not in (tmp_path / "out" / "README.md").read_text()
    assert open_trained(w).run.model == model


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        (("O", "B-PER", "I-PER"), "bio"),
        (("I-PER", "O", "B-PER"), "bio"),
        (("O", "B-LOC", "I-LOC", "I-PER"), "iob1"),
        (("O", "B-PER", "I-PER", "E-PER", "S-PER"), "iobes"),
        (("NOUN", "VERB"), "plain"),
        (("LABEL_0", "LABEL_1"), "plain"),
    ],
)
def test_the_scheme_is_that_of_the_names_of_the_tags(labels, scheme, vocabularies, tmp_path):
    model = TaggerConfig(encoder=ENCODERS["bert"], labels=labels, scheme=scheme)
    params = draw_params(Run(model=model, data=Data(objective=make_head_objective(model))))
    write_model(tmp_path / "theirs", model, params, vocabularies["bert"])
    opened = open_model(tmp_path / "theirs")
    assert opened.config == model
    metrics = make_starting_run(opened.config).evaluate.metrics
    assert ("entity_f1" in metrics) == (scheme != "plain")


# ---- refusals ------------------------------------------------------------------------------------


def drop(prefix):
    return lambda tensors: {
        name: array for name, array in tensors.items() if not name.startswith(prefix)
    }


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("name", "kind", "change", "settings", "message"),
    [
        ("bert", "tags", drop("classifier."), {}, "missing classifier.bias, classifier.weight"),
        ("bert", "spans", drop("qa_outputs.bias"), {}, "missing qa_outputs.bias"),
        ("bert", "choices", drop("bert.pooler."), {}, "missing bert.pooler.dense.bias"),
        ("bert", "tags", dict, {"id2label": {"0": "O", "1": "B"}},
         r"classifier.weight has shape \[5, 16\]; config.json makes it \[2, 16\]"),
        ("bert", "tags", dict, {"id2label": {"0": "O"}}, "there must be at least two tags"),
        ("bert", "tags", dict, {"id2label": ["O", "B"]}, "id2label is .*; expected an object"),
        ("bert", "tags", dict, {"classifier_dropout": "x"}, "classifier_dropout is 'x'"),
        ("electra", "choices", dict, {"summary_type": "mean"}, "summary_type is 'mean'"),
    ],
)  # fmt: skip
def test_what_is_no_whole_model_is_refused(
    name, kind, change, settings, message, vocabularies, tmp_path
):
    model, params = make_model(name, kind)
    folder = tmp_path / "theirs"
    write_model(folder, model, params, vocabularies[name])
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")
    described = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=message):
        import_params(folder)
