"""Results in a folder belong to the settings of the first command that used it."""

import importlib
import json
import sys

import pytest

from benchmarks.cached_results import require_settings
from pretrain.workdir.workdir import Workdir

pytestmark = pytest.mark.fast


def test_the_settings_of_the_first_command_stay(tmp_path):
    path = tmp_path / "new" / "settings.json"
    require_settings(path, {"steps": 900, "bert": None}, False)
    require_settings(path, {"steps": 900, "bert": "runs/bert"}, True)
    assert json.loads(path.read_text()) == {"steps": 900, "bert": "runs/bert"}
    with pytest.raises(ValueError, match=r"steps=900, not with steps=300: use another"):
        require_settings(path, {"steps": 300, "bert": None}, True)
    assert json.loads(path.read_text()) == {"steps": 900, "bert": "runs/bert"}


def test_results_without_settings_are_not_taken_for_those_of_the_command(tmp_path):
    with pytest.raises(ValueError, match="does not say with which steps, beams"):
        require_settings(tmp_path / "settings.json", {"steps": 1, "beams": 4}, True)
    assert not (tmp_path / "settings.json").exists()


# Program: (its arguments, the settings of its folder, what the error says of its own).
CASES = {
    "seq2seq": ("{corpus} --work {work} --beams 3", '{"steps": 900, "beams": 4}', "beams=3"),
    "words_and_pictures": ("{corpus} --work {work}", '{"pictures": 9}', "pictures=30000"),
    "grover": ("--corpora {corpus} --folder {work} --epochs 2", '{"epochs": 3}', "epochs=2"),
    "ladder": ("--corpora {corpus} --folder {work} --epochs 1", '{"epochs": 2}', "epochs=1"),
    "feature_layers": ("--from {from} --work {work}", '{"encoder": "a"}', "encoder="),
    "elmo_tagger": ("--from {from} --work {work}", '{"encoder": "a"}', "encoder="),
    "classifiers": ("--runs {work}/runs --encoder {from}", '{"encoder": "a"}', "encoder="),
}


@pytest.mark.parametrize("name", CASES)
def test_a_command_with_other_settings_is_refused(name, tmp_path, monkeypatch, capsys):
    words, settings, other = CASES[name]
    program = importlib.import_module(f"benchmarks.papers.{name}")
    places = {place: str(tmp_path / place) for place in ("corpus", "work", "from")}
    (tmp_path / "work").mkdir()
    file = "runs.settings.json" if name == "classifiers" else "settings.json"
    (tmp_path / "work" / file).write_text(settings)
    (tmp_path / "corpus" / "books" / "train").mkdir(parents=True)
    (tmp_path / "corpus" / "books" / "train" / "a.jsonl").touch()
    monkeypatch.setattr(program, "require_paths", lambda *_: None)
    monkeypatch.setattr(Workdir, "run", None)
    if name == "classifiers":
        words += " --corpora {corpus}"
    monkeypatch.delenv("CLOZE_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [program.__file__, *words.format(**places).split()])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"work/{file}" in error and other in error
