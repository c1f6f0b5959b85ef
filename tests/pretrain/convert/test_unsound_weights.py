"""Row 24: non-finite weights and untrained heads are refused by name, unless a flag allows them."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pretrain.__main__ import main
from pretrain.api.importing import make_starting_run
from pretrain.convert.read_write import open_model
from pretrain.convert.weight_values import LONGEST, check_finite, make_printable
from pretrain.families.tensor_steps import merge_copies
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import open_trained
from tests.command import split_words
from tests.small_store import write_store

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
QUERY = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture(autouse=True)
def strict():
    """optax promotes types freely."""


def without_head(tensors):
    return {name: array for name, array in tensors.items() if name.startswith("bert.")}


@pytest.fixture
def changed_folder(tmp_path):
    """Return theirs(change): a copy of a BERT of transformers with its tensors as `change` returns
    them.
    """

    def copy_folder(change):
        folder = tmp_path / "theirs"
        shutil.copytree(GOLDENS / "hf_bert", folder)
        tensors = change(load_file(folder / "model.safetensors"))
        save_file(
            {name: np.ascontiguousarray(array) for name, array in tensors.items()},
            folder / "model.safetensors",
        )
        return folder

    return copy_folder


@pytest.fixture
def error_line(capsys):
    """Return error(*words): the one-line error of a command."""

    def read_error(*words):
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        (line,) = [
            line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")
        ]
        return line

    return read_error


# ---- values that are not finite ----------------------------------------------


def add_nonfinite(tensors, kind=np.float32):
    array = tensors[QUERY].astype(kind)
    array.flat[:4] = [np.nan, np.nan, np.nan, np.inf]
    return tensors | {QUERY: array}


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_nan_is_refused_on_import_and_on_export_unless_allowed(
    changed_folder, error_line, tmp_path, record_property, kind
):
    folder, w, out = (
        changed_folder(lambda tensors: add_nonfinite(tensors, kind)),
        tmp_path / "w",
        tmp_path / "out",
    )
    size = load_file(folder / "model.safetensors")[QUERY].size
    line = error_line("import", folder, "--workdir", w)
    assert (
        f"{folder}: the tensor {QUERY} holds 3 NaN and 1 infinite values of {size:,}" in line
        and "--allow-nonfinite" in line
    )
    assert not w.exists()
    assert main(["import", str(folder), "--workdir", str(w), "--allow-nonfinite"]) == 0
    line = error_line("export", "--workdir", w, "--output", out)
    assert (
        f"the tensor {QUERY} holds 3 NaN and 1 infinite values of {size:,}" in line
        and "--allow-nonfinite" in line
    )
    assert not out.exists()
    assert main(["export", "--workdir", str(w), "--output", str(out), "--allow-nonfinite"]) == 0
    assert np.isnan(load_file(out / "model.safetensors")[QUERY]).sum() == 3
    record_property("weights that are not finite refused", 2)


def test_a_tensor_that_the_model_does_not_take_may_hold_anything(changed_folder, tmp_path):
    folder = changed_folder(
        lambda tensors: tensors | {"classifier.weight": np.full((2, 3), np.nan, np.float32)}
    )
    assert main(["import", str(folder), "--workdir", str(tmp_path / "w")]) == 0


def test_values_too_large_for_float32_are_not_finite_and_integers_are():
    with pytest.raises(
        ValueError, match="the tensor x holds 0 NaN and 2 infinite values of 3 as float32"
    ):
        check_finite("x", np.array([1e300, -1e39, 1.0]), "")
    check_finite("x", np.array([1, 2]), "")
    check_finite("x", np.array([1e38, -0.0, 1e-300]), "")


def test_a_name_from_a_file_cannot_write_to_the_terminal_or_fill_it():
    assert make_printable("a\x1b[31m\nb") == "a?[31m?b"
    assert len(make_printable("x" * 10_000)) == LONGEST + 3


# ---- heads that nobody trained -----------------------------------------------


@pytest.fixture
def headless(changed_folder, tmp_path, capsys):
    """Return (workdir, store) of an encoder that was imported without its heads."""
    w, store = tmp_path / "w", tmp_path / "store"
    folder = changed_folder(without_head)
    words = "data.objective.length=16 data.objective.max_predictions=3 data.batch_size=8 train.compute_dtype=float32 train.steps=1".split()
    words += ["optimizer.warmup_steps=1", "evaluate.every=0", f"data.store={store}"]
    assert main(["import", str(folder), "--workdir", str(w), *words]) == 0
    vocabulary, rng = open_model(folder).vocabulary, np.random.default_rng(0)
    documents = [
        [rng.integers(5, vocabulary.size, 12).tolist() for _ in range(2)] for _ in range(20)
    ]
    write_store(store, vocabulary, documents, heldout=documents[:8])
    return w


def test_a_random_head_is_refused_until_it_is_trained(
    headless, error_line, tmp_path, capsys, record_property
):
    w, flag = headless, "--allow-random-head"
    verbs = {
        "evaluate": ["evaluate", "--workdir", str(w)],
        "predict": ["predict", "--workdir", str(w), "a [MASK] b"],
        "export": ["export", "--workdir", str(w), "--output", str(tmp_path / "out")],
    }
    for verb, words in verbs.items():
        line = error_line(*words)
        assert (
            "7 tensors" if verb == "export" else "5 tensors"
        ) in line and "cls.predictions.bias" in line
        assert flag in line and f"`{verb}` uses them" in line and "more" in line and str(w) in line
    assert not (tmp_path / "out").exists()
    for words in verbs.values():
        assert main([*words, flag]) == 0
    shutil.rmtree(tmp_path / "out")
    with jax.numpy_dtype_promotion("standard"):
        assert main(["train", str(w / "config.json"), "--workdir", str(w)]) == 0
    for verb, words in verbs.items():
        assert main(words) == 0, verb
    record_property("random heads refused", len(verbs))


def test_verbs_that_use_the_encoder_alone_need_no_head(headless, tmp_path):
    texts = tmp_path / "texts"
    texts.write_text("a b\n")
    assert (
        main(
            split_words(
                f"features --workdir {headless} --input {texts} --output {tmp_path / 'features.npz'}"
            )
        )
        == 0
    )
    assert (
        main(
            split_words(
                f"attention --workdir {headless} 'a b' --output {tmp_path / 'attention.html'}"
            )
        )
        == 0
    )


def test_masks_are_filled_without_a_sentence_head(changed_folder, error_line, tmp_path):
    """transformers saves this of a BertForMaskedLM."""
    folder = changed_folder(
        lambda tensors: {
            name: array
            for name, array in tensors.items()
            if "pooler" not in name and "seq_relationship" not in name
        }
    )
    w = tmp_path / "w"
    assert main(["import", str(folder), "--workdir", str(w)]) == 0
    assert main(["predict", "--workdir", str(w), "a [MASK] b"]) == 0
    assert "cls.seq_relationship.bias" in error_line(
        "export", "--workdir", w, "--output", tmp_path / "out"
    )


def test_a_student_does_not_learn_from_a_random_head(headless, error_line, tmp_path):
    model = open_trained(headless).run.model
    words = [
        f"model.{name}={getattr(model, name)}"
        for name in ("vocab", "length", "segments", "width", "num_heads", "mlp", "epsilon")
    ]
    words += [f"model.depth={model.depth}", f"model.teacher_depth={model.depth}"]
    line = error_line(
        "distil",
        "distilbert_base",
        "--teacher",
        headless,
        "--workdir",
        tmp_path / "student",
        *words,
    )
    assert "`distil` uses them" in line and "cls.predictions" in line


def test_a_workdir_that_began_here_is_not_refused(headless, tmp_path, capsys):
    trained = open_trained(headless)
    start_workdir(
        tmp_path / "own", make_starting_run(trained.run.model), trained.params, trained.vocabulary
    )
    assert main(["predict", "--workdir", str(tmp_path / "own"), "a [MASK] b"]) == 0
    assert json.loads((headless / "origin.json").read_text())["missing"]


def test_two_copies_of_nan_are_one_weight():
    """With --allow-nonfinite; a copy that differs elsewhere is refused."""
    table = np.array([1, np.nan, np.inf], np.float32)
    merged = merge_copies({"table": table, "copy": table.copy()}, {"copy": "table"})
    assert list(merged) == ["table"]
    other = np.array([2, np.nan, np.inf], np.float32)
    with pytest.raises(ValueError, match="copy differs from table"):
        merge_copies({"table": table, "copy": other}, {"copy": "table"})
    numbers = np.arange(3)
    assert list(merge_copies({"ids": numbers, "copy": numbers}, {"copy": "ids"})) == ["ids"]
