"""docs/adding_an_objective.md is true: its files, added to a copy of the program, are an objective that is inspected, trains, is evaluated and exported."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGE = ROOT / "docs/adding_an_objective.md"
WORDS = "the a fox dog river stone runs sees near old".split()
# One process: what is imported and compiled once serves all the verbs.
SCRIPT = """
from pretrain.__main__ import main

def run(*words):
    status = main([str(word) for word in words])
    assert status == 0, (words, status)

OBJECTIVE = ["data.objective=SwappedWords", "data.objective.length=16", "data.store=store", "data.batch_size=8"]
MODEL = ["model.vocab=64", "model.length=16", "model.width=32", "model.mlp=64", "model.num_heads=2"]
RUN = ["train.steps=4", "evaluate.every=4", "checkpoint.every=4", "optimizer.warmup_steps=1"]

run("prepare", "text.txt", "--output", "store", "--vocab-size", 64, "--algorithm", "bpe", "--document", "record",
    "--workers", 1, "--held-out", 0.2)
run("inspect", "bert_tiny", *OBJECTIVE, *MODEL)
run("train", "bert_tiny", "--workdir", "run", *OBJECTIVE, *MODEL, *RUN)
run("evaluate", "--workdir", "run")
run("export", "--workdir", "run", "--output", "hf")
"""


def read_blocks():
    """Return {file: text} of the page's blocks whose first line names a file."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(), flags=re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A copy of the program with the page's files, in which SCRIPT was run, and what it printed."""
    place = tmp_path_factory.mktemp("objective")
    for folder in ("models", "data", "pretrain", "configs"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in read_blocks().items():
        assert not (place / name).exists()
        (place / name).write_text(text)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, int(rng.integers(4, 9)))) + "." for _ in range(200)]
    (place / "text.txt").write_text("\n".join(texts))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": str(place),
            "JAX_PLATFORMS": "cpu",
            "COLUMNS": "160",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (place / "printed.txt").write_text(done.stdout)
    return place


def test_an_objective_is_three_files_at_most():
    places = [pathlib.Path(name).parent.as_posix() for name in read_blocks()]
    assert places == ["data/objectives", "pretrain/training/losses"]
    assert len({pathlib.Path(name).stem for name in read_blocks()}) == 1


def test_it_is_inspected_trained_evaluated_and_exported(place):
    printed = (place / "printed.txt").read_text()
    assert "rows whose places are not swapped" in printed and "every promise holds" in printed
    rows = [json.loads(line) for line in (place / "run/metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["step"] == 4]
    assert np.isfinite([row["loss"] for row in last if "loss" in row]).all()
    assert any("heldout_swapped_words" in row for row in last)
    assert "swapped_words_accuracy" in printed
    assert (place / "hf/model.safetensors").exists()
    assert (
        "two neighbouring tokens in the other order, rows of 16"
        in (place / "hf/README.md").read_text()
    )
