"""Export in 16 bits: weights are rounded to the nearest, labelled with their dtype, and read back
unchanged.
"""

import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from data.vocabulary.load import train_vocabulary
from models.config.electra import ElectraConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert import read_write
from pretrain.convert.read_write import write_model
from pretrain.convert.weight_values import round_tensors
from pretrain.training.new_workdir import start_workdir
from tests.pretrain.cli.test_export import BERT, TEXT, make_noisy_params


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(TEXT, 72)


@pytest.fixture(scope="module")
def folders(vocabulary, tmp_path_factory):
    """Return {dtype: folder} of one model."""
    root, params = tmp_path_factory.mktemp("dtypes"), make_noisy_params(BERT)
    for dtype in ("float32", "bfloat16", "float16"):
        write_model(root / dtype, BERT, params, vocabulary, dtype=dtype)
    return {path.name: path for path in root.iterdir()}


def round_to_bfloat16(array):
    """Return the upper half of the bits, rounded to the nearest, ties to even."""
    bits = array.view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def test_values_are_rounded_to_the_nearest(folders):
    exact, low, half = (
        load_file(folders[dtype] / "model.safetensors")
        for dtype in ("float32", "bfloat16", "float16")
    )
    assert exact.keys() == low.keys() == half.keys()
    for name, array in exact.items():
        assert (low[name].dtype, half[name].dtype) == ("bfloat16", "float16")
        np.testing.assert_array_equal(low[name].astype(np.float32), round_to_bfloat16(array))
        spacing = np.spacing(np.abs(array).astype(np.float16)).astype(np.float32)
        assert (np.abs(half[name].astype(np.float32) - array) <= spacing / 2).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_folder_records_its_dtype_and_is_imported_unchanged(folders, dtype):
    assert json.loads((folders[dtype] / "config.json").read_text())["dtype"] == dtype
    sizes = {
        name: (folder / "model.safetensors").stat().st_size for name, folder in folders.items()
    }
    assert 0.5 <= sizes[dtype] / sizes["float32"] < 0.6  # some names are mapped
    opened = read_write.open_model(folders[dtype])
    params, missing, unused = opened.load_params(BERT, make_initializer(make_starting_run(BERT)))
    assert not missing
    assert not unused
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype("float32")}


def test_values_beyond_float16_are_refused(vocabulary, tmp_path):
    params = make_noisy_params(BERT)
    params["bert"]["pooler"]["bias"][3] = -65_520.0
    message = "bert.pooler.dense.bias holds 65520, which float16 has no number for.*bfloat16"
    with pytest.raises(ValueError, match=message):
        write_model(tmp_path / "x", BERT, params, vocabulary, dtype="float16")
    assert not list(tmp_path.iterdir())
    write_model(tmp_path / "x", BERT, params, vocabulary, dtype="bfloat16")


def test_values_that_are_not_finite_stay_so_where_they_are_allowed():
    tensors = {"a": np.array([np.nan, np.inf, 1.0], np.float32), "ids": np.arange(3)}
    found = round_tensors(tensors, "float16")
    np.testing.assert_array_equal(found["a"], np.array([np.nan, np.inf, 1.0], np.float16))
    assert found["ids"].dtype == np.arange(3).dtype
    assert not tensors


@pytest.mark.more
def test_transformers_opens_them_in_their_type(folders):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    ids = torch.arange(6, 18).reshape(1, 12)
    logits = {}
    for dtype in ("float32", "bfloat16", "float16"):
        model = transformers.BertForPreTraining.from_pretrained(folders[dtype], dtype="auto").eval()
        assert model.dtype == getattr(torch, dtype)
        with torch.no_grad():
            logits[dtype] = model.float()(ids).prediction_logits.numpy()
    for dtype, bound in (("bfloat16", 0.02), ("float16", 0.003)):
        error = np.abs(logits[dtype] - logits["float32"]).max()
        assert 0 < error < bound * np.abs(logits["float32"]).max()


def test_the_verb_and_its_model_card_name_the_dtype(vocabulary, folders, tmp_path, capsys):
    start_workdir(tmp_path / "w", make_starting_run(BERT), make_noisy_params(BERT), vocabulary)
    words = ["export", "--workdir", str(tmp_path / "w"), "--output", str(tmp_path / "hf")]
    with pytest.raises(SystemExit) as ending:
        main([*words, "--dtype", "half"])
    assert ending.value.code == 2
    assert "'bfloat16'" in capsys.readouterr().err
    assert main([*words, "--dtype", "bfloat16", "--allow-random-head"]) == 0
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "| weights | bfloat16, rounded from float32 |" in card
    written = (tmp_path / "hf" / "model.safetensors").read_bytes()
    assert written == (folders["bfloat16"] / "model.safetensors").read_bytes()


def test_both_models_of_an_electra_are_rounded(vocabulary, tmp_path):
    config = ElectraConfig(
        vocab=256, length=40, width=16, depth=2, num_heads=2, mlp=24, embedding=8,
        generator_width=8, generator_num_heads=2, generator_mlp=12,
    )  # fmt: skip
    write_model(tmp_path / "hf", config, make_noisy_params(config), vocabulary, dtype="bfloat16")
    for folder in (tmp_path / "hf", tmp_path / "hf" / "generator"):
        assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
        tensors = load_file(folder / "model.safetensors")
        assert {str(array.dtype) for array in tensors.values()} == {"bfloat16"}
