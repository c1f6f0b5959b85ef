"""docs/adding_an_objective.md is true: its files, added to a copy of the program, make an objective
that is inspected, trained, evaluated and exported.
"""

import json
import pathlib

import numpy as np
import pytest

from tests.worked_examples import read_blocks, run_commands, write_texts

pytestmark = [pytest.mark.more, pytest.mark.slow]

PAGE = "docs/adding_an_objective.md"
SCRIPT = """
OBJECTIVE = ["data.objective=SwappedWords", "data.objective.length=16", "data.store=store", "data.batch_size=8"]
MODEL = ["model.vocab=64", "model.length=16", "model.width=32", "model.mlp=64", "model.num_heads=2"]
RUN = ["train.steps=4", "evaluate.every=4", "checkpoint.every=4", "optimizer.warmup_steps=1"]

run("inspect", "bert_tiny", *OBJECTIVE, *MODEL)
run("train", "bert_tiny", "--workdir", "run", *OBJECTIVE, *MODEL, *RUN)
run("evaluate", "--workdir", "run")
run("export", "--workdir", "run", "--output", "hf")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a copy of the program with the page's files, in which SCRIPT was run, and the output."""
    place = tmp_path_factory.mktemp("objective")
    write_texts(place)
    (place / "printed.txt").write_text(run_commands(place, PAGE, SCRIPT))
    return place


def test_an_objective_is_three_files_at_most():
    places = [pathlib.Path(name).parent.as_posix() for name in read_blocks(PAGE)]
    assert places == ["data/objectives", "pretrain/training/losses"]
    assert len({pathlib.Path(name).stem for name in read_blocks(PAGE)}) == 1


def test_it_is_inspected_trained_evaluated_and_exported(place):
    printed = (place / "printed.txt").read_text()
    assert "rows whose places are not swapped" in printed and "all checks passed" in printed
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
