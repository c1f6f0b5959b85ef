"""A segment of benchmarks/papers/transformer_xl_evaluation.py fits into the shortest attention."""

import sys

import pytest

from benchmarks.papers import transformer_xl_evaluation as evaluation

pytestmark = pytest.mark.fast


def test_a_segment_longer_than_the_attention_is_refused(monkeypatch, capsys):
    measured = []
    monkeypatch.setattr(evaluation, "measure_length", lambda *words: measured.append(words) or [])
    monkeypatch.setattr(evaluation, "add_result", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [evaluation.__file__, "--segment", "801"])
    with pytest.raises(SystemExit, match="2"):
        evaluation.main()
    assert "--segment: 801 is not from 1 to 800" in capsys.readouterr().err and not measured
    monkeypatch.setattr(sys, "argv", [evaluation.__file__, "--segment", "800"])
    evaluation.main()
    assert [words[1] for words in measured] == [800] * len(evaluation.PAPER)
