"""ELECTRA besides training: round trips of its two transformers folders, and `predict` on a text."""

import dataclasses
import json
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data.vocabulary.load import train_vocabulary
from models import build
from models.config.electra import ElectraConfig
from pretrain.__main__ import main
from pretrain.api.importing import make_initializer, make_starting_run
from pretrain.convert.read_write import open_model, write_model
from pretrain.convert.safe_folder import FolderError
from pretrain.inference import fill_mask
from pretrain.training.new_workdir import start_workdir
from pretrain.workdir.trained import Trained
from pretrain.workdir.workdir import Workdir
from tests.pretrain.workdirs import draw_params

TEXT = [
    "The quick brown fox jumps over the lazy dog. The fox and the fox.",
    "A cloze is a test in which words are left out of a text, and the reader fills the gaps.",
    "Whoever reads the words before a gap and behind it can often tell what stood there.",
] * 8
CONFIG = ElectraConfig(
    vocab=128, length=40, embedding=8, width=16, depth=2, num_heads=2, mlp=24,
    generator_width=8, generator_num_heads=1, generator_mlp=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(TEXT, 110, algorithm="bpe")


@pytest.fixture(scope="module")
def params():
    return draw_params(CONFIG)


@pytest.fixture(scope="module")
def workdir(vocabulary, params, tmp_path_factory):
    path = tmp_path_factory.mktemp("electra") / "w"
    start_workdir(path, make_starting_run(CONFIG), params, vocabulary)
    return path


@pytest.fixture(scope="module")
def exported(vocabulary, params, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "electra"
    write_model(path, CONFIG, params, vocabulary)
    return path


@pytest.fixture
def folder(exported, tmp_path):
    """Return a copy of the export, which a test may damage."""
    return shutil.copytree(exported, tmp_path / "folder")


# ---- folders -----------------------------------------------------------------


def test_the_generators_folder_is_in_the_discriminators(workdir, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["export", "--workdir", str(workdir), "--output", str(out)]
    assert main(words) == 0
    output = capsys.readouterr().out
    names = {
        "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "spiece.model",
    }  # fmt: skip
    assert {path.name for path in out.iterdir()} == names | {"README.md", "generator"}
    assert {path.name for path in (out / "generator").iterdir()} == names
    assert (
        f"{(out / 'generator' / 'model.safetensors').stat().st_size:,} bytes" in output
        and "  generator/config.json " in output
    )
    described = [
        json.loads((place / "config.json").read_text()) for place in (out, out / "generator")
    ]
    assert [each["architectures"] for each in described] == [
        ["ElectraForPreTraining"],
        ["ElectraForMaskedLM"],
    ]
    assert [each["hidden_size"] for each in described] == [16, 8] and "generator" not in described[
        0
    ]
    card = (out / "README.md").read_text()
    assert (
        "pipeline_tag: feature-extraction" in card
        and "| generator | 2 layers, hidden size 8," in card
    )

    assert main([*words, "--overwrite"]) == 0
    (out / "generator" / "notes.txt").write_text("mine")
    assert main([*words, "--overwrite"]) == 2
    assert "holds generator/notes.txt, which no export writes" in capsys.readouterr().err


def test_an_export_is_imported_again(exported, params, vocabulary):
    opened = open_model(exported)
    assert opened.config == CONFIG and opened.vocabulary.pieces == vocabulary.pieces
    again, missing, unused = opened.load_params(CONFIG, make_initializer(make_starting_run(CONFIG)))
    assert missing == unused == ()
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_a_generator_alone_is_refused(folder):
    with pytest.raises(
        FolderError,
        match="a generator alone; import the folder of its ElectraForPreTraining",
    ):
        open_model(folder / "generator")


def test_shared_parameters_must_be_equal_in_both_folders(folder):
    path = folder / "generator" / "model.safetensors"
    tensors = load_file(path)
    tensors["electra.embeddings.position_embeddings.weight"] += 1
    save_file(tensors, path)
    opened, init = open_model(folder), make_initializer(make_starting_run(CONFIG))
    with pytest.raises(
        FolderError,
        match="generator/electra.embeddings.position_embeddings.weight differs from electra.embeddings",
    ):
        opened.load_params(CONFIG, init)
    described = json.loads((folder / "generator" / "config.json").read_text())
    (folder / "generator" / "config.json").write_text(json.dumps(described | {"vocab_size": 127}))
    with pytest.raises(FolderError, match="vocab_size is 128, and 127 in generator/config.json"):
        open_model(folder)


def test_a_discriminator_without_its_head_gets_a_new_one(folder, params):
    """A fine-tuned folder: its own head has no place here, the rest is imported."""
    path = folder / "model.safetensors"
    tensors = {
        name: tensor
        for name, tensor in load_file(path).items()
        if not name.startswith("discriminator_predictions.")
    }
    save_file(tensors | {"classifier.dense.weight": np.zeros((2, 2), np.float32)}, path)
    again, missing, unused = open_model(folder).load_params(
        CONFIG, lambda: jax.tree.map(jnp.ones_like, params)
    )
    assert unused == ("classifier.dense.weight",) and all(
        name.startswith("discriminator_predictions.") for name in missing
    )
    assert all((leaf == 1).all() for leaf in jax.tree.leaves(again.pop("discriminator_head")))
    jax.tree.map(np.testing.assert_array_equal, again, {part: params[part] for part in again})


@pytest.mark.more
@pytest.mark.parametrize("wide", [False, True])
def test_both_classes_of_transformers_give_the_logits_and_what_they_save_is_imported(
    exported, params, vocabulary, tmp_path, wide
):
    """No tensor is missing or left over in either folder, with and without projections of the
    embeddings.
    """
    torch = pytest.importorskip("torch", reason="the extra `peers` is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra `peers` is not installed")
    transformers.utils.logging.disable_progress_bar()
    config, weights, place = CONFIG, params, exported
    if wide:
        config = dataclasses.replace(CONFIG, embedding=16, scan=False)
        weights, place = draw_params(config), tmp_path / "wide"
        write_model(place, config, weights, vocabulary)
    valid = np.arange(12) < 12 - 3 * np.arange(3)[:, None]
    ids = np.where(
        valid, np.random.default_rng(1).integers(5, 110, (3, 12)), vocabulary.pad
    ).astype(np.int32)
    segments = ((np.arange(12) > 4) * valid).astype(np.int32)
    given = {"input_ids": ids, "attention_mask": valid, "token_type_ids": segments}
    given = {name: torch.tensor(array.astype(np.int64)) for name, array in given.items()}
    ours = jax.jit(build(config).apply)({"params": weights}, ids, valid, segments)
    auto = (
        (transformers.AutoModelForMaskedLM, place / "generator"),
        (transformers.AutoModelForPreTraining, place),
    )
    for (kind, path), logits in zip(auto, ours, strict=True):
        model, info = kind.from_pretrained(path, output_loading_info=True)
        assert not any(info.values()), info
        with torch.no_grad():
            theirs = model.eval()(**given).logits.numpy()
        there = valid if logits.ndim == 2 else valid[..., None]
        np.testing.assert_allclose(
            np.where(there, logits, 0), np.where(there, theirs, 0), atol=1e-4
        )
        assert np.abs(theirs).max() > 0.1
        model.save_pretrained(tmp_path / "again" / path.relative_to(place))
    transformers.AutoTokenizer.from_pretrained(place).save_pretrained(tmp_path / "again")
    opened = open_model(tmp_path / "again")
    again, missing, unused = opened.load_params(config, make_initializer(make_starting_run(config)))
    assert opened.config == dataclasses.replace(config, scan=True) and missing == unused == ()
    jax.tree.map(np.testing.assert_array_equal, again, weights)


# ---- predict -----------------------------------------------------------------


def test_words_are_discriminated_as_the_model_discriminates_their_tokens(
    workdir, vocabulary, params, capsys
):
    text = "The quick fox reads the words."
    assert (
        main(
            ["predict", "--workdir", str(workdir), text, "The [MASK] fox.", "--json", "--top", "2"]
        )
        == 0
    )
    judged, filled = (json.loads(line) for line in capsys.readouterr().out.strip().split("\n"))
    assert (
        filled["filled"] != filled["text"] and len(filled["masks"]) == 1 and "judged" not in filled
    )
    assert judged["filled"] == text and [each["word"] for each in judged["judged"]] == text.split()
    ids = [vocabulary.cls, *vocabulary.encode_batch([text])[0], vocabulary.sep]
    judge = jax.jit(partial(build(CONFIG).apply, method="discriminate"))
    logits = judge({"params": params}, np.array([ids], np.int32), np.ones((1, len(ids)), bool))
    chances, words = 1 / (1 + np.exp(-np.asarray(logits[0], np.float64))), []
    for i, chance in list(zip(ids, chances))[1:-1]:
        words += [[]] if vocabulary.starts_word[i] else []
        words[-1].append(chance)
    assert max(map(len, words)) > 1
    np.testing.assert_allclose(
        [each["probability"] for each in judged["judged"]], [max(word) for word in words], rtol=1e-4
    )
    assert main(["predict", "--workdir", str(workdir), text]) == 0
    lines = capsys.readouterr().out.strip().split("\n")
    assert lines[0] == text and [line.split()[-1] for line in lines[1:]] == text.split()


def test_texts_are_discriminated_in_a_batch_as_alone(vocabulary, params, tmp_path):
    trained = Trained(Workdir.open(tmp_path), make_starting_run(CONFIG), 0, params, vocabulary)
    texts = [
        "fox",
        "the [MASK] fox",
        "A cloze is a test in which words are left out of a text.",
        "[MASK]",
        "a reader reads",
        "x y",
    ]
    together = fill_mask.ReplacementDetector(trained, 2, 3)(texts, [None] * 6)
    alone = [fill_mask.ReplacementDetector(trained, 2, 1)([text], [None])[0] for text in texts]
    for text, a, b in zip(texts, together, alone, strict=True):
        assert a.keys() == b.keys() and ("judged" in a) != ("[MASK]" in text)
        for one, other in zip(a.get("judged", ()), b.get("judged", ()), strict=True):
            assert (
                one["word"] == other["word"]
                and abs(one["probability"] - other["probability"]) < 1e-5
            )
    judge = fill_mask.ReplacementDetector(trained, 2, 1)
    with pytest.raises(ValueError, match="text 2: there is no word in ''"):
        judge(["fox", ""], [None] * 2)
    with pytest.raises(
        ValueError, match=r"file:7: \d+ tokens with \[CLS\] and \[SEP\], the model reads at most 40"
    ):
        judge(["x " * 60], ["file:7"])
