"""`predict` writes one result for each line of a text file; a blank line has an empty one."""

import dataclasses
import json

import jax
import pytest

from data.vocabulary.load import train_vocabulary
from models import build
from pretrain.__main__ import main
from pretrain.training.new_workdir import start_workdir
from pretrain.training.state import init_params
from tests.pretrain.conftest import RUNS, make_texts

CASES = {  # {run: (layout, size, a text that it answers, fields of a blank line)}
    "bert": ("bert", 40, "the old [MASK]", {"filled": "", "masks": []}),
    "electra": ("bert", 40, "the old fox", {"filled": "", "judged": []}),
    "t5": ("t5", 138, "the old <extra_id_0>", {"filled": "", "spans": {}}),
    "transformer": ("transformer", 36, "the old fox", {"written": ""}),
    "lstm_lm": ("gpt", 36, "the old", {"filled": "", "written": ""}),
    "classifier": (
        "bert",
        40,
        "the old fox",
        {"label": None, "probability": None, "probabilities": None},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_line_has_a_result(name, tmp_path, capsys):
    layout, size, text, blank = CASES[name]
    run = RUNS[name]
    vocabulary = train_vocabulary(make_texts(600), size, layout=layout)
    model = dataclasses.replace(run.model, vocab=256) if name == "t5" else run.model
    run = dataclasses.replace(run, model=model)
    params = jax.jit(lambda: init_params(build(model), run.data.objective, 0))()
    start_workdir(tmp_path / "run", run, jax.device_get(params), vocabulary)
    lines = [text, "", text, "  \t", text, ""]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    argv = ["predict", "--workdir", str(tmp_path / "run"), "--input", str(tmp_path / "a.txt")]
    assert main([*argv, "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(results) == len(lines)
    assert [results[i] for i in (1, 3, 5)] == [{"text": ""} | blank] * 3
    assert results[0] == results[2] == results[4] and results[0] != results[1]
    assert results[0].keys() == results[1].keys() or name == "electra"
    (tmp_path / "b.txt").write_text("\n \n")
    assert main([*argv[:-1], str(tmp_path / "b.txt")]) == 2
    assert "b.txt: contains no texts" in capsys.readouterr().err
