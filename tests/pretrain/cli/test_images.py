"""The verbs on images: from a folder to labels and to a folder of Hugging Face, and wrong ones."""

import json
import re
import shutil

import numpy as np
import pytest

from pretrain.__main__ import main
from tests.image_files import write_class_folders

MODEL = [
    *("model.image_size=16", "model.patch_size=4", "model.pixels.mean=0.5,0.5,0.5"),
    *("model.pixels.std=0.5,0.5,0.5", "model.width=16", "model.depth=1", "model.num_heads=2"),
    *("model.mlp=16", "model.classes=3", "data.objective.size=16", "data.objective.channels=3"),
    *("data.batch_size=16", "train.steps=4", "evaluate.every=4", "checkpoint.every=4"),
    *("optimizer.warmup_steps=1", "data.objective.crop_ratio=0.8"),
]
SHOW = ["attention", "--workdir", "{vit}", "--output", "{new}.html"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    write_class_folders(root / "images", count=12)
    options = ["--output", str(root / "store"), "--held-out", "0.3"]
    assert main(["prepare-images", str(root / "images"), *options]) == 0
    words = ["train", "vit_mnist", "--workdir", str(root / "vit"), f"data.store={root / 'store'}"]
    assert main([*words, *MODEL]) == 0
    return root


def read_labels(root, workdir, capsys):
    words = ["predict", "--workdir", str(root / workdir), "--input", str(root / "images/disk")]
    assert main([*words, "--json", "--top", "2"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_folder_becomes_labels_and_a_folder_of_transformers(root, capsys):
    capsys.readouterr()
    labels = read_labels(root, "vit", capsys)
    assert len(labels) == 12 and {*labels[0]["probabilities"]} <= {"disk", "square", "stripes"}
    assert all(len(row["probabilities"]) == 2 for row in labels)
    words = ["--input", str(root / "images/disk"), "--output", str(root / "labels.jsonl")]
    assert main(["predict", "--workdir", str(root / "vit"), *words]) == 0
    assert "labels.jsonl: 12 images, step" in capsys.readouterr().out
    assert main(["evaluate", "--workdir", str(root / "vit"), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert 0 <= scores["image_classification_accuracy"] <= 1 and scores["rows"] > 0
    assert main(["export", "--workdir", str(root / "vit"), "--output", str(root / "hf")]) == 0
    processor = json.loads((root / "hf" / "preprocessor_config.json").read_text())
    assert processor["size"] == {"shortest_edge": 20} and processor["crop_size"]["height"] == 16
    assert "36 images" not in (root / "hf" / "README.md").read_text()  # of the training split alone
    assert " images: `images` (100%)" in (root / "hf" / "README.md").read_text()
    assert main(["import", str(root / "hf"), "--workdir", str(root / "imported")]) == 0
    capsys.readouterr()
    again = read_labels(root, "imported", capsys)
    for one, two in zip(labels, again, strict=True):
        assert one["probabilities"] == pytest.approx(two["probabilities"], abs=1e-6)


def test_attention_and_report_show_what_the_model_sees(root, tmp_path, capsys):
    images = ["--input", str(root / "images" / "disk"), "--images", str(tmp_path)]
    page = tmp_path / "a.html"
    words = ["attention", "--workdir", str(root / "vit"), "--output", str(page)]
    assert main([*words, *images]) == 0
    assert "a.html: 12 images, " in capsys.readouterr().out
    text = page.read_text()
    assert text.count("<section") == 12 and text.count("<figure>") == 12 * (1 + 2 + 2)
    assert len(list(tmp_path.glob("image_*.png"))) == 12
    assert main([*words, *images, "--layers", "1"]) == 2
    assert "a.html exists" in capsys.readouterr().err
    report = ["report", "--workdir", str(root / "vit"), "--output"]
    assert main([*report, str(tmp_path / "report")]) == 0
    assert (tmp_path / "report" / "patches.png").read_bytes().startswith(b"\x89PNG")
    ((run,), _) = read_report(tmp_path / "report")
    assert np.shape(run["figures"]["distances"]) == (1, 2)
    assert all(0 < distance < 16 for distance in run["figures"]["distances"][0])
    assert run["figures"]["filters"].startswith("data:image/png;base64,")


def test_a_report_without_a_store_or_a_checkpoint(root, tmp_path, capsys):
    report = ["report", "--workdir", str(root / "vit"), "--output", str(tmp_path)]
    (root / "store").rename(root / "moved")
    try:
        assert main(report) == 0
    finally:
        (root / "moved").rename(root / "store")
    assert "the store is absent, so no attention distance is drawn" in capsys.readouterr().out
    ((run,), text) = read_report(tmp_path)
    assert run["figures"]["distances"] is None and "img-src data:" in text
    (root / "vit" / "checkpoints").rename(root / "checkpoints")
    try:
        assert main(report) == 0
    finally:
        shutil.rmtree(root / "vit" / "checkpoints", ignore_errors=True)
        (root / "checkpoints").rename(root / "vit" / "checkpoints")
    assert "no checkpoint yet, so the filters are not drawn" in capsys.readouterr().out
    assert read_report(tmp_path)[0][0]["figures"] is None


def read_report(folder):
    """Return the runs of a report, and its text."""
    text = (folder / "report.html").read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(data[1])["runs"], text


def test_a_store_of_other_classes_is_refused(root, tmp_path, capsys):
    write_class_folders(tmp_path / "more", count=4)
    (tmp_path / "more" / "disk").rename(tmp_path / "more" / "ring")
    store = ["--output", str(tmp_path / "store"), "--held-out", "0.4"]
    assert main(["prepare-images", str(tmp_path / "more"), *store]) == 0
    capsys.readouterr()
    words = ["evaluate", "--workdir", str(root / "vit"), "--store", str(tmp_path / "store")]
    assert main(words) == 2
    assert f"prepare it with --classes {root / 'vit'}/images" in capsys.readouterr().err
    store = ["--output", str(tmp_path / "other"), "--classes", str(root / "vit" / "images")]
    assert main(["prepare-images", str(tmp_path / "more"), *store]) == 2
    assert "images of the class 'ring', which --classes has not" in capsys.readouterr().err


@pytest.mark.held_by(3)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "--workdir", "{vit}", "nothing.png"], "nothing.png: no such file"),
        (["predict", "--workdir", "{vit}", "a", "--length", "3"], "for models that generate"),
        (["predict", "--workdir", "{vit}", "--input", "{empty}"], "no image in it"),
        (["features", "--workdir", "{vit}", "--input", "{text}", "--output", "x.npz"], "reads images"),
        (["train", "bert_tiny", "--workdir", "{new}", "data.store={store}"], "MaskedLm reads texts"),
        ([*SHOW, "The cat sat."], "The cat sat.: no such file; the texts of this model are images"),
        ([*SHOW, "{text}"], "text: in none of the formats JPEG"),
        ([*SHOW, "{empty}"], "empty: a folder; --input reads the images in one"),
        ([*SHOW, "--input", "{empty}"], "no image in it"),
        ([*SHOW, "{text}", "--layers", "2"], "--layers 2: the model has layers 1 to 1"),
        (["prepare-images", "{empty}", "--output", "{new}"], "one folder for each class"),
        (["train", "vit_mnist", "--workdir", "{new}", "data.store={store}", "model.classes=2"],
         "3 classes, and the head scores 2"),
        (["train", "vit_mnist", "--workdir", "{new}", "model.image_size=30"],
         "patch_size=7 does not divide image_size=30"),
    ],
)  # fmt: skip
def test_wrong_words_are_one_clear_error(root, tmp_path, capsys, words, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("A text.\n")
    places = {"vit": root / "vit", "store": root / "store"}
    places |= {"text": tmp_path / "text", "empty": tmp_path / "empty", "new": tmp_path / "new"}
    assert main([word.format(**places) for word in words]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
