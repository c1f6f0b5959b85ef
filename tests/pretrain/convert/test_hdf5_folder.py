"""Released weights in HDF5: what is imported, and each damage as one error."""

import copy
import functools
import importlib.util

import jax
import numpy as np
import pytest

from models import build
from models.activations import capture_activations
from pretrain.__main__ import main
from pretrain.convert.hdf5_folder import is_hdf5_folder, open_hdf5_model
from pretrain.convert.safe_folder import FolderError
from pretrain.workdir.trained import open_trained
from tests import elmo_numpy

h5py = pytest.importorskip("h5py")
CELL = elmo_numpy.CELL.format(1, 0)


@pytest.fixture(scope="module")
def datasets():
    return elmo_numpy.make_datasets()


@pytest.fixture
def folder(tmp_path, datasets):
    return elmo_numpy.write_folder(tmp_path / "released", datasets)


def test_an_imported_model_has_the_layers_of_numpy(folder, datasets, tmp_path, capsys):
    (folder / "vocab-2016.txt").write_text("</S>\n<S>\n<UNK>\nthe\nof\n")
    workdir = str(tmp_path / "w")
    assert main(["import", str(folder), "--workdir", workdir]) == 0
    printed = capsys.readouterr().out
    assert "reads words by 12 characters; targets: 6 words" in printed
    assert "mix/scale, mix/weights, target_embedding/embedding" in printed
    trained = open_trained(workdir)
    assert trained.vocabulary.pieces[4:] == ("the", "of")
    words = ["<S>", "unseen", "wörds", ".", "</S>"]
    characters = np.array([[elmo_numpy.spell(word, 12) for word in words]])
    mask = np.ones((1, 5), bool)
    model = build(trained.run.model)
    seen = capture_activations(model, trained.params, characters, mask, method="encode")
    layers, _ = elmo_numpy.read_sentence(words, datasets)
    for found, expected in zip(seen.hidden_states, layers, strict=True):
        np.testing.assert_allclose(found[0], expected, atol=2e-5)


def change_options(*path, value):
    def change(folder):
        options = copy.deepcopy(elmo_numpy.OPTIONS)
        *parts, last = path
        part = options
        for name in parts:
            part = part[name]
        if value is None:
            del part[last]
        else:
            part[last] = value
        import json

        (folder / "options.json").write_text(json.dumps(options))

    return change


def change_dataset(name, make):
    """Return a function that replaces a dataset by `make(file, old)`'s; None removes it."""

    def change(folder):
        with h5py.File(folder / "weights.hdf5", "a") as file:
            old = file[name][()]
            del file[name]
            new = make(file, old)
            if new is not None:
                file[name] = new

    return change


def make_virtual(file, old):
    layout = h5py.VirtualLayout(shape=old.shape, dtype=old.dtype)
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=old.shape)
    file.create_virtual_dataset("virtual", layout)
    return h5py.SoftLink("/virtual")


def cut_file(folder):
    path = folder / "weights.hdf5"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


LSTM, CNN = "lstm", "char_cnn"
DAMAGES = {
    "no options": (lambda folder: (folder / "options.json").unlink(), "no options.json: it has"),
    "no json": (lambda folder: (folder / "options.json").write_text("{"), "options.json"),
    "a list": (lambda folder: (folder / "options.json").write_text("[1]"), "holds list, expected"),
    "option missing": (change_options(LSTM, "dim", value=None), "the option 'dim' is missing"),
    "option of text": (change_options(LSTM, "n_layers", value="2"), "options.json"),
    "half a layer": (change_options(LSTM, "n_layers", value=1.5), "depth is 1.5; at most"),
    "many layers": (change_options(LSTM, "n_layers", value=10**9), "depth is 1000000000; at most"),
    "many filters": (change_options(CNN, "filters", value=[[1, 2**24]]), "bytes of memory"),
    "other sizes": (change_options(LSTM, "dim", value=10), r"has the shape \(10, 36\), and"),
    "two limits": (change_options(LSTM, "proj_clip", value=4), "cell_clip is 3 and proj_clip 4"),
    "no projection": (change_options(LSTM, "projection_dim", value=9), "projection_dim is 9"),
    "activation": (change_options(CNN, "activation", value="gelu"), "activation is 'gelu'"),
    "alphabet": (change_options(CNN, "n_characters", value=300), "n_characters is 300"),
    "no file": (lambda folder: (folder / "weights.hdf5").unlink(), "is expected, not none"),
    "no HDF5": (
        lambda folder: (folder / "weights.hdf5").write_bytes(b"PK\3\4" * 99),
        "weights.hdf5: not an HDF5 file; fetch it again",
    ),
    "cut": (cut_file, "weights.hdf5"),
    "two files": (
        lambda folder: (folder / "other_weights.h5").write_bytes(b""),
        "is expected, not other_weights.h5, weights.hdf5",
    ),
    "dataset missing": (
        change_dataset(f"{CELL}/W_P_0", lambda file, old: None),
        f"has no dataset {CELL}/W_P_0",
    ),
    "shape": (
        change_dataset("char_embed", lambda file, old: old[:-1]),
        r"char_embed has the shape \(260, 4\), and \(261, 4\) by options.json",
    ),
    "huge": (
        change_dataset(
            "char_embed",
            lambda file, old: (
                file.create_dataset("big", (1 << 40, 4), "f4", chunks=(1024, 4)),
                h5py.SoftLink("/big"),
            )[1],
        ),
        "char_embed is a link to another place",
    ),
    "outside": (
        change_dataset("char_embed", lambda file, old: h5py.ExternalLink("/etc/passwd", "/x")),
        "char_embed is a link to another place, which is not followed",
    ),
    "virtual": (change_dataset("CNN_proj/b_proj", make_virtual), "is a link to another place"),
    "text": (
        change_dataset("CNN_proj/b_proj", lambda file, old: np.array([b"a"] * 5)),
        "CNN_proj/b_proj is stored as",
    ),
    "group": (
        change_dataset("char_embed", lambda file, old: file.create_group("char_embed") and None),
        "char_embed is a Group, not a dataset",
    ),
    "two lists": (
        lambda folder: [(folder / f"vocab{i}.txt").write_text("a\n") for i in range(2)],
        "has 2 lists of words, vocab0.txt and vocab1.txt",
    ),
}


@pytest.mark.held_by(6)
@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_folder_is_one_error(folder, damage, message):
    damage(folder)
    assert is_hdf5_folder(folder)
    with pytest.raises(FolderError, match=message):
        open_hdf5_model(folder)


def test_a_dataset_in_another_file_is_not_read(folder):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        old = file["char_embed"][()]
        del file["char_embed"]
        file.create_dataset(
            "char_embed", old.shape, old.dtype, external=[("/etc/hostname", 0, old.nbytes)]
        )
    with pytest.raises(FolderError, match="char_embed is stored in another file"):
        open_hdf5_model(folder)


def test_weights_that_are_not_finite_are_refused(folder, tmp_path, capsys):
    with h5py.File(folder / "weights.hdf5", "a") as file:
        file["CNN_proj/b_proj"][1] = np.nan
    words = ["import", str(folder), "--workdir", str(tmp_path / "w")]
    assert main(words) == 2
    assert "words/projection/bias" in capsys.readouterr().err
    assert not (tmp_path / "w").exists()
    assert main([*words, "--allow-nonfinite"]) == 0


def test_other_sizes_of_the_model_are_refused(folder, tmp_path, capsys):
    words = ["import", str(folder), "--workdir", str(tmp_path / "w"), "model.cells=12"]
    assert main(words) == 2
    assert "the model has other sizes than options.json" in capsys.readouterr().err


def test_without_h5py_the_extra_is_named(folder, monkeypatch, tmp_path, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "h5py" else find(name)
    )
    assert main(["import", str(folder), "--workdir", str(tmp_path / "w")]) == 2
    error = capsys.readouterr().err
    assert "which needs h5py" in error and "[hdf5]" in error


def test_a_folder_of_transformers_is_none_of_hdf5(folder):
    (folder / "config.json").write_text("{}")
    assert not is_hdf5_folder(folder) and not is_hdf5_folder(folder / "absent")


def test_a_released_model_is_a_function_of_the_file_alone(folder):
    """What the folder lacks is random by the seed, the rest is the file's."""
    opened = open_hdf5_model(folder)
    model = build(opened.config)

    def init(seed):
        return model.init(jax.random.key(seed), np.ones((1, 1, 12), np.int32))["params"]

    first, second = (
        opened.load_params(opened.config, functools.partial(init, seed))[0] for seed in (0, 1)
    )
    same = jax.tree.map(lambda a, b: np.array_equal(a, b), first, second)
    assert all(jax.tree.leaves(same["words"])) and all(jax.tree.leaves(same["bilm"]))
    assert not same["target_embedding"]["embedding"]
