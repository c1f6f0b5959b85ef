"""The committed pictures are drawn only when their section is in the page."""

import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest

from benchmarks.papers import reformer, words_and_pictures
from benchmarks.speed import growth

pytestmark = pytest.mark.fast


class Refused(Exception):
    """The page is not written."""


def refuse_result(*_: Any) -> None:
    raise Refused


@pytest.fixture
def order(monkeypatch) -> list[str]:
    """Return what is done, in order; a page is refused."""
    done = []
    for program, draw in (
        (growth, "draw_curves"),
        (reformer, "draw_errors"),
        (words_and_pictures, "draw_examples"),
    ):
        monkeypatch.setattr(program, draw, lambda *_: done.append("drawn"))
        monkeypatch.setattr(program, "add_result", refuse_result)
    return done


def test_growth(order, monkeypatch):
    monkeypatch.setattr(growth, "measure_points", lambda *_: ({}, "0"))
    monkeypatch.setattr(growth, "make_curves", lambda _: {})
    monkeypatch.setattr(growth, "format_table", lambda _: [])
    monkeypatch.setattr(sys, "argv", [growth.__file__])
    with pytest.raises(Refused):
        growth.main()
    assert not order


def test_reformer(order, monkeypatch):
    monkeypatch.setattr(reformer, "draw_vectors", lambda *_: (None,) * 2)
    monkeypatch.setattr(reformer, "measure_errors", lambda *_, **__: [])
    monkeypatch.setattr(reformer, "measure_task", lambda *_: [])
    monkeypatch.setattr(sys, "argv", [reformer.__file__])
    with pytest.raises(Refused):
        reformer.main()
    assert not order


def test_words_and_pictures(order, monkeypatch, tmp_path):
    judge = mock.MagicMock()
    judge.tokens_ST = judge.other_ST = judge.fill_pictures.return_value = np.zeros((2, 4), int)
    judge.filler.visual.first_patch = judge.filler.vocabulary.mask = 0
    filler = mock.MagicMock(return_value=judge.filler)
    for name, value in (
        ("Judge", lambda *_: judge),
        ("PairFiller", filler),
        ("open_trained", lambda _: mock.MagicMock(params={})),
        ("metrics_file", mock.MagicMock()),
        ("run_verb", lambda *_: None),
        ("require_paths", lambda *_: None),
        ("draw_scenes", lambda *_, **__: []),
        ("write_scenes", lambda *_: None),
        ("format_tables", lambda _: []),
    ):
        monkeypatch.setattr(words_and_pictures, name, value)
    words = [str(tmp_path), "--work", str(tmp_path / "new")]
    monkeypatch.setattr(sys, "argv", [words_and_pictures.__file__, *words])
    with pytest.raises(Refused):
        words_and_pictures.main()
    assert not order
