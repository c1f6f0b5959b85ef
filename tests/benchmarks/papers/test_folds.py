"""The benchmarks on folds do not train on the rows that they score."""

import importlib
import json
import sys

import pytest

from benchmarks.papers import classifiers

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", ["classifiers", "ladder"])
def test_more_folds_than_ten_are_refused(name, tmp_path, monkeypatch, capsys):
    program = importlib.import_module(f"benchmarks.papers.{name}")
    place = ["--runs" if name == "classifiers" else "--folder", str(tmp_path / "place")]
    words = ["--corpora", str(tmp_path), *place, "--folds", "11"]
    monkeypatch.setattr(sys, "argv", [program.__file__, *words])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    assert "--folds: 11 is not from 1 to 10" in capsys.readouterr().err
    assert not (tmp_path / "place").exists()


def test_ten_folds_score_each_row_once_and_train_on_none_of_theirs(tmp_path):
    path = tmp_path / classifiers.SETS["MR"].train
    path.parent.mkdir()
    lines = [json.dumps({"text": f"text {i}", "label": i % 2}) + "\n" for i in range(25)]
    path.write_text("".join(lines))
    splits = classifiers.list_splits(tmp_path, classifiers.SETS["MR"], 10)
    assert len(splits) == 10
    scored = [row["text"] for _, test in splits for row in test]
    assert sorted(scored) == sorted(f"text {i}" for i in range(25))
    assert all(row not in train for train, test in splits for row in test)
