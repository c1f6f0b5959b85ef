"""A folder that transformers saved becomes a run with the same logits and tensors, or is refused
clearly.
"""

import dataclasses
import json
import pathlib
import re
import shutil
from types import SimpleNamespace

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models import build
from models.config.gpt2 import Gpt2Config
from models.config.transformer import TransformerConfig
from models.generation.decoding import generate
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.cli.import_ import format_summary
from pretrain.convert.export_folder import write_tensors
from pretrain.convert.read_write import open_model, write_model
from pretrain.convert.safe_folder import FolderError
from tests.small_store import write_store

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
NAMES = ("hf_bert", "hf_t5", "hf_t5_v1_1", "hf_roberta", "hf_albert")


def read_outputs(name):
    with np.load(GOLDENS / "hf_outputs.npz") as arrays:
        chosen = {
            key.partition("/")[2]: arrays[key] for key in arrays if key.startswith(f"{name}/")
        }
    return {
        key: array.astype(np.int32) if array.dtype == np.int64 else array
        for key, array in chosen.items()
    }


def read_folder(folder):
    opened = open_model(folder)
    run = make_starting_run(opened.config)
    return opened, run, *opened.load_params(run.model, make_initializer(run))


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def folder(tmp_path):
    """Return folder(name): a copy of a golden folder, which a test may damage."""

    def copy_folder(name):
        shutil.copytree(GOLDENS / name, tmp_path / "theirs", dirs_exist_ok=True)
        return tmp_path / "theirs"

    return copy_folder


def rewrite_tensors(folder, change):
    """Save the tensors of a folder as `change` returns them."""
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {key: np.ascontiguousarray(array) for key, array in change(tensors).items()},
        folder / "model.safetensors",
    )


def change_settings(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# ---- the same model ----------------------------------------------------------


@pytest.mark.held_by(2)
def test_logits_of_transformers(name):
    _, run, params, missing, unused = read_folder(GOLDENS / name)
    assert (missing, unused) == ((), ())
    golden, model = read_outputs(name), build(run.model)
    if name in ("hf_bert", "hf_albert"):
        words, following = model.apply(
            {"params": params}, golden["ids"], golden["valid"], golden["segments"]
        )
        np.testing.assert_allclose(following, golden["next"], atol=1e-5)
        np.testing.assert_allclose(
            np.where(golden["valid"][..., None], words - golden["words"], 0), 0, atol=1e-5
        )
        return
    if name == "hf_roberta":
        words, _ = model.apply({"params": params}, golden["ids"], golden["valid"])
        np.testing.assert_allclose(
            np.where(golden["valid"][..., None], words - golden["words"], 0), 0, atol=1e-5
        )
        return
    words = model.apply({"params": params}, golden["ids"], golden["valid"], golden["targets"])
    np.testing.assert_allclose(words, golden["words"], atol=1e-4)
    nats = -np.take_along_axis(
        np.asarray(jax.nn.log_softmax(words)), golden["targets"][..., None], -1
    )
    np.testing.assert_allclose(nats.mean(), golden["loss"], atol=1e-5)
    written = generate(
        model, params, golden["ids"], golden["valid"], length=golden["written"].shape[1]
    )
    np.testing.assert_array_equal(written, golden["written"])


@pytest.mark.held_by(2)
@pytest.mark.parametrize("name", [*NAMES, "hf_gpt", "hf_gpt2"])
def test_import_then_export_is_the_identity(name, tmp_path):
    opened, run, params, *_ = read_folder(GOLDENS / name)
    write_model(tmp_path / "again", run.model, params, opened.vocabulary)
    before, after = (
        load_file(folder / "model.safetensors") for folder in (GOLDENS / name, tmp_path / "again")
    )
    assert before.keys() == after.keys()
    for key in before:
        assert (
            before[key].dtype == after[key].dtype and before[key].tobytes() == after[key].tobytes()
        ), key
    for file in ("tokenizer.json",):
        theirs, ours = (
            json.loads((folder / file).read_text())
            for folder in (GOLDENS / name, tmp_path / "again")
        )
        assert theirs == ours
    theirs, ours = (
        json.loads((folder / "config.json").read_text())
        for folder in (GOLDENS / name, tmp_path / "again")
    )
    changed = {"tie_word_embeddings"}  # transformers 5 writes true there for every T5
    if ours["model_type"] == "gpt2" and theirs["pad_token_id"] is None:  # no batch could be padded
        assert ours["pad_token_id"] == ours["eos_token_id"]
        changed.add("pad_token_id")
    for key in ours.keys() & theirs.keys() - changed:
        assert ours[key] == theirs[key], key


def test_parts_are_one_model(folder):
    theirs = folder("hf_bert")
    tensors = load_file(theirs / "model.safetensors")
    (theirs / "model.safetensors").unlink()
    write_tensors(theirs, tensors, limit=1500)
    assert len(list(theirs.glob("model-*.safetensors"))) > 3
    _, _, params, *_ = read_folder(theirs)
    _, _, expected, *_ = read_folder(GOLDENS / "hf_bert")
    jax.tree.map(np.testing.assert_array_equal, params, expected)


def drop_prefix(tensors):
    """BertModel: no heads, no prefix."""
    return {
        key.removeprefix("bert."): array
        for key, array in tensors.items()
        if key.startswith("bert.")
    }


def drop_pooler(tensors):
    return {key: array for key, array in drop_prefix(tensors).items() if "pooler" not in key}


def keep_masked_lm(tensors):
    """BertForMaskedLM: no pooler, no next-sentence head; older files also have the table twice and
    position_ids.
    """
    remaining = {
        key: array
        for key, array in tensors.items()
        if "pooler" not in key and "seq_relationship" not in key
    }
    remaining |= {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"]
    }
    remaining |= {"cls.predictions.decoder.bias": tensors["cls.predictions.bias"]}
    return remaining | {"bert.embeddings.position_ids": np.arange(24)[None]}


def use_old_names(tensors):
    """Norms have their names of 2018."""
    return {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for key, array in tensors.items()
    }


def add_classifier(tensors):
    """A BERT with some other head."""
    remaining = {key: array for key, array in tensors.items() if key.startswith("bert.")}
    return remaining | {
        "classifier.weight": np.zeros((2, 8), np.float32),
        "classifier.bias": np.zeros(2, np.float32),
    }


@pytest.mark.held_by(2)
@pytest.mark.parametrize(
    ("change", "missing", "unused"),
    [
        (drop_prefix, ("cls.predictions", "cls.seq_relationship"), ()),
        (drop_pooler, ("bert.pooler", "cls.predictions", "cls.seq_relationship"), ()),
        (keep_masked_lm, ("bert.pooler", "cls.seq_relationship"), ("bert.embeddings.position_ids",)),
        (use_old_names, (), ()),
        (add_classifier, ("cls.predictions", "cls.seq_relationship"), ("classifier.bias", "classifier.weight")),
    ],
)  # fmt: skip
def test_berts_with_and_without_heads(folder, change, missing, unused):
    theirs = folder("hf_bert")
    rewrite_tensors(theirs, change)
    _, run, params, lost, left = read_folder(theirs)
    assert {".".join(key.split(".")[:2]) for key in lost} == set(missing)
    assert left == unused
    _, _, whole, *_ = read_folder(GOLDENS / "hf_bert")
    fresh = jax.jit(make_initializer(run))()
    parts = {
        "bert.pooler": ("bert", "pooler"),
        "cls.predictions": ("mlm_head",),
        "cls.seq_relationship": ("next_sentence_head",),
    }
    for part, path in parts.items():
        ours, expected = params, (fresh if part in missing else whole)
        for step in path:
            ours, expected = ours[step], expected[step]
        jax.tree.map(np.testing.assert_array_equal, ours, expected)
    jax.tree.map(np.testing.assert_array_equal, params["bert"]["encoder"], whole["bert"]["encoder"])
    jax.tree.map(
        np.testing.assert_array_equal, params["bert"]["embeddings"], whole["bert"]["embeddings"]
    )


# ---- the verb ----------------------------------------------------------------


def make_documents(vocabulary, count, seed):
    """Return documents of sentences of ids without special tokens."""
    rng = np.random.default_rng(seed)
    plain = np.flatnonzero(~vocabulary.special)
    return [
        [rng.choice(plain, rng.integers(5, 12)).tolist() for _ in range(6)] for _ in range(count)
    ]


@pytest.mark.held_by(1)
@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("hf_bert", ("length=16", "max_predictions=3")),
        ("hf_t5_v1_1", ("inputs=24",)),
        ("hf_roberta", ("length=16", "max_predictions=3", "rows=sentences")),
        ("hf_gpt", ("length=16",)),
        ("hf_gpt2", ("length=16",)),
    ],
)
def test_imported_evaluated_trained_exported(request, name, objective, tmp_path, capsys):
    """The whole way: import, evaluate, train on, export; an export before training equals the
    imported folder.
    """
    if name in ("hf_roberta", "hf_gpt"):
        request.getfixturevalue("whole")
    w, store = tmp_path / "w", tmp_path / "store"
    words = [f"data.objective.{word}" for word in objective]
    words += "data.batch_size=8 train.compute_dtype=float32 train.steps=2 optimizer.warmup_steps=1 evaluate.every=0".split()
    assert (
        main(["import", str(GOLDENS / name), "--workdir", str(w), f"data.store={store}", *words])
        == 0
    )
    output = capsys.readouterr().out
    assert f"import {name}" in output or name in output
    assert "data.store=" in output and "initialized at random" not in output
    vocabulary = open_model(GOLDENS / name).vocabulary
    write_store(
        store,
        vocabulary,
        make_documents(vocabulary, 40, 0),
        heldout=make_documents(vocabulary, 10, 1),
    )
    assert main(["evaluate", "--workdir", str(w), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out.strip().split("\n")[-1])
    assert scores["step"] == 0 and np.isfinite(scores["loss"])

    assert main(["export", "--workdir", str(w), "--output", str(tmp_path / "same")]) == 0
    before, after = (
        load_file(folder / "model.safetensors") for folder in (GOLDENS / name, tmp_path / "same")
    )
    assert before.keys() == after.keys() and all(
        before[key].tobytes() == after[key].tobytes() for key in before
    )
    assert "not trained any further" in (tmp_path / "same" / "README.md").read_text()

    assert main(["train", str(w / "config.json"), "--workdir", str(w)]) == 0
    assert main(["export", "--workdir", str(w), "--output", str(tmp_path / "trained")]) == 0
    trained = load_file(tmp_path / "trained" / "model.safetensors")
    assert trained.keys() == before.keys() and any(
        trained[key].tobytes() != before[key].tobytes() for key in before
    )
    card = (tmp_path / "trained" / "README.md").read_text()
    assert f"come from `{name}`; trained further with Cloze, for 2 steps" in card
    assert ("next-sentence head learned nothing here" in card) == (name == "hf_bert")
    assert "40 documents" in card and "None was made during training." in card


def test_missing_tensors_are_reported(folder, tmp_path, capsys):
    theirs = folder("hf_bert")
    rewrite_tensors(
        theirs,
        lambda tensors: {
            key: array.astype(ml_dtypes.bfloat16) for key, array in add_classifier(tensors).items()
        },
    )
    change_settings(
        theirs,
        auto_map={"AutoModel": "modeling.Custom"},
        architectures=["BertForNextSentencePrediction"],
    )
    assert main(["import", str(theirs), "--workdir", str(tmp_path / "w"), "model.dropout=0"]) == 0
    output = capsys.readouterr().out
    assert "BertForNextSentencePrediction" in output
    assert "initialized at random (train.seed=0): cls.predictions.bias" in output
    assert "ignored: classifier.bias, classifier.weight" in output
    assert "stored as BF16; converted exactly to float32" in output
    assert "never runs" in output
    origin = json.loads((tmp_path / "w" / "origin.json").read_text())
    assert origin["folder"] == "theirs" and origin["stored"] == ["BF16"]
    assert json.loads((tmp_path / "w" / "config.json").read_text())["model"]["dropout"] == 0.0


def test_an_existing_workdir_is_left_alone(tmp_path, capsys):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "notes").write_text("mine")
    assert main(["import", str(GOLDENS / "hf_bert"), "--workdir", str(tmp_path / "w")]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["notes"]


# ---- refusals ----------------------------------------------------------------


def truncate_file(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def drop_tensor(name):
    return lambda folder: rewrite_tensors(
        folder, lambda tensors: {key: array for key, array in tensors.items() if key != name}
    )


def reshape_tensor(name, shape):
    return lambda folder: rewrite_tensors(
        folder, lambda tensors: tensors | {name: np.zeros(shape, np.float32)}
    )


def make_pickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def drop_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


REFUSALS = {
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no model.safetensors"),
    "pickle": (make_pickled, "pytorch_model.bin.*convert it once"),
    "truncated": (truncate_file, "model.safetensors: not a whole"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "broken config": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json: not JSON",
    ),
    "another family": (
        lambda folder: change_settings(folder, model_type="funnel"),
        "model_type 'funnel'.*bart, bert",
    ),
    "no family": (lambda folder: change_settings(folder, model_type=None), "model_type None"),
    "encoder of T5": (
        lambda folder: change_settings(folder, architectures=["T5EncoderModel"]),
        "T5EncoderModel: it has no decoder",
    ),
    "unknown setting": (
        lambda folder: change_settings(folder, hidden_act="swish"),
        "config.json: hidden_act is 'swish'",
    ),
    "wrong type": (lambda folder: change_settings(folder, hidden_size="8"), "hidden_size is '8'"),
    "no size": (lambda folder: change_settings(folder, num_hidden_layers=3), "layer.2"),
    "too few layers": (lambda folder: change_settings(folder, num_hidden_layers=1), "layer.1"),
    "missing tensor": (
        drop_tensor("bert.encoder.layer.1.output.dense.weight"),
        "missing bert.encoder.layer.1.output.dense.weight",
    ),
    "half a head": (
        drop_tensor("cls.predictions.transform.dense.bias"),
        "missing cls.predictions.transform.dense.bias",
    ),
    "wrong shape": (
        reshape_tensor("bert.encoder.layer.0.output.dense.weight", (8, 15)),
        r"output.dense.weight has shape \[8, 15\]",
    ),
    "larger vocabulary": (
        lambda folder: change_settings(folder, vocab_size=60),
        "vocab_size is 60, and no dimension of the tensors is larger than 48",
    ),
    "another tokenizer": (
        lambda folder: change_settings(folder, vocab_size=40),
        "tokenizer has 47 ids, but vocab_size.* is 40",
    ),
    "no tokenizer": (drop_tokenizer, "no vocabulary here"),
}


@pytest.mark.held_by(5)
@pytest.mark.parametrize("case", REFUSALS)
def test_errors_name_the_cause_and_leave_no_workdir(case, folder, tmp_path, capsys):
    spoil, message = REFUSALS[case]
    theirs = folder("hf_bert")
    spoil(theirs)
    (tmp_path / "runs").mkdir()
    assert main(["import", str(theirs), "--workdir", str(tmp_path / "runs" / "w")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and str(theirs) in error
    assert re.search(message, error), error
    assert list((tmp_path / "runs").iterdir()) == []


def test_t5_refusals(folder):
    theirs = folder("hf_t5")
    for changes, message in (
        ({"feed_forward_proj": "gated-silu"}, "feed_forward_proj"),
        ({"decoder_start_token_id": 7}, "decoder_start_token_id"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder"),
    ):
        shutil.copy(GOLDENS / "hf_t5" / "config.json", theirs)
        change_settings(theirs, **changes)
        with pytest.raises(FolderError, match=f"config.json: {message}"):
            open_model(theirs)
    shutil.copy(GOLDENS / "hf_t5" / "config.json", theirs)
    rewrite_tensors(
        theirs,
        lambda tensors: {
            key: array for key, array in tensors.items() if not key.startswith("decoder.")
        },
    )
    with pytest.raises(FolderError, match="missing decoder.block.0"):
        read_folder(theirs)


def test_a_misspelt_override_ends_before_anything_is_written(tmp_path, capsys):
    assert (
        main(
            ["import", str(GOLDENS / "hf_bert"), "--workdir", str(tmp_path / "w"), "trian.steps=3"]
        )
        == 2
    )
    assert "did you mean 'train'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (TransformerConfig(), "prepare TEXT --document pair --output"),
        (Gpt2Config(), "prepare TEXT --output"),
    ],
)
def test_the_printed_next_command_prepares_what_the_model_reads(model, words, tmp_path):
    class Tensors(dict):
        def list_formats(self):
            return ["F32"]

    opened = SimpleNamespace(
        architectures=[],
        tensors=Tensors(),
        encoding=SimpleNamespace(kind="sentencepiece", size=100),
        vocabulary=SimpleNamespace(kind="sentencepiece", size=100),
    )
    args = SimpleNamespace(workdir="runs/theirs", folder="theirs")
    run = make_starting_run(model)
    assert words in format_summary(args, opened, run, (), ())
    # A store that the import was given is the one that is read; one that is missing is made.
    for store, is_made in ((tmp_path, False), (tmp_path / "my store", True)):
        run = dataclasses.replace(run, data=dataclasses.replace(run.data, store=str(store)))
        summary = format_summary(args, opened, run, (), ())
        quoted = f"'{store}'" if is_made else str(store)
        assert (f" --output {quoted} --vocabulary" in summary) == is_made
        assert (f" --store {quoted}" in summary and f"data.store={quoted} " in summary) == is_made
        assert "STORE" not in summary
        assert ("runs/theirs train.steps=N" in summary) == (not is_made)
