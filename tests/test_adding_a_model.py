"""docs/adding_a_model.md is true: its four files, added to a copy of the program, are a family that trains, is fine-tuned, exported and imported."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs/adding_a_model.md"
WORDS = "the a fox dog river stone runs sees near old".split()
# One process: what is imported and compiled once serves all the verbs.
SCRIPT = """
import sys
import numpy as np
from pretrain.__main__ import main

def run(*words):
    status = main([str(word) for word in words])
    assert status == 0, (words, status)

run("prepare", "text.txt", "--output", "store", "--vocab-size", 64, "--algorithm", "bpe", "--document", "record", "--workers", 1)
run("train", "ernie_tiny", "--workdir", "run", "data.store=store")
run("finetune", "--from", "run", "--task", "classification", "--train", "labels.jsonl", "--heldout", "labels.jsonl",
    "--workdir", "labels", "--epochs", 1, "data.batch_size=8", "data.objective.length=16")
run("export", "--workdir", "run", "--output", "hf")
run("export", "--workdir", "labels", "--output", "hf_labels")
run("import", "hf", "--workdir", "imported")
run("export", "--workdir", "imported", "--output", "hf_again")

from models import build
from pretrain.workdir.load import open_trained
trained = open_trained("imported")
tokens = np.arange(8, 24).reshape(1, 16)
logits, _ = build(trained.run.model).apply({"params": trained.params}, tokens, tokens > 0)
np.savez("logits.npz", tokens=tokens, logits=logits)
"""


def read_blocks():
    """Return {file: text} of the page's blocks whose first line names a file."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(), flags=re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A copy of the program with the page's files, in which SCRIPT was run."""
    place = tmp_path_factory.mktemp("family")
    for folder in ("models", "data", "pretrain", "configs"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in read_blocks().items():
        assert not (place / name).exists()
        (place / name).write_text(text)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, int(rng.integers(4, 9)))) + "." for _ in range(200)]
    (place / "text.txt").write_text("\n".join(texts))
    (place / "labels.jsonl").write_text(
        "".join(
            json.dumps({"text": text, "label": str("fox" in text)}) + "\n" for text in texts[:24]
        )
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": str(place),
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return place


def test_a_family_is_four_files():
    places = [pathlib.Path(name).parent.as_posix() for name in read_blocks()]
    assert places == ["models", "models/config", "pretrain/families", "configs"]


def test_it_trains_and_comes_back_from_an_export(place):
    steps = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
    assert steps[-1]["step"] == 4 and np.isfinite(steps[-1]["loss"])
    first, again = (load_file(place / name / "model.safetensors") for name in ("hf", "hf_again"))
    assert first.keys() == again.keys()
    assert all(np.array_equal(first[name], again[name]) for name in first)
    labels = json.loads((place / "hf_labels/config.json").read_text())
    assert labels["architectures"] == ["ErnieForSequenceClassification"]
    assert labels["id2label"] == {"0": "False", "1": "True"}


def test_its_logits_are_those_of_transformers(place):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    found = np.load(place / "logits.npz")
    peer = transformers.ErnieForMaskedLM.from_pretrained(place / "hf").eval()
    with torch.no_grad():
        expected = peer(torch.tensor(found["tokens"])).logits.numpy()
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)
    for name in ("hf", "hf_labels"):
        loader = (
            transformers.AutoModelForSequenceClassification
            if "labels" in name
            else transformers.AutoModelForMaskedLM
        )
        _, report = loader.from_pretrained(place / name, output_loading_info=True)
        assert not report["missing_keys"] and not report["mismatched_keys"]
