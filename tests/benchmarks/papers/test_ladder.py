"""The ladder measures its reference next to the models that it is asked for."""

import pytest

from benchmarks.equal_time import EqualTime
from benchmarks.papers import ladder

pytestmark = pytest.mark.fast


def test_the_store_of_the_reference_is_prepared_too(tmp_path, monkeypatch):
    prepared, measured = [], []
    monkeypatch.setattr(ladder, "prepare_books", lambda _, __, kind: prepared.append(kind))

    def measure_rates(self, names, seconds):
        measured.extend(names)
        raise RuntimeError("enough")

    books = tmp_path / "books" / "train"
    books.mkdir(parents=True)
    (books / "a.jsonl").touch()
    (tmp_path / "cls_sentconv").mkdir()
    (tmp_path / "cls_sentconv" / "mr.jsonl").touch()
    monkeypatch.setattr(EqualTime, "measure_rates", measure_rates)
    words = ["--corpora", str(tmp_path), "--folder", str(tmp_path / "new")]
    monkeypatch.setattr("sys.argv", ["ladder.py", *words, "--models", "elmo", "--sets", "MR"])
    with pytest.raises((SystemExit, RuntimeError)):
        ladder.main()
    assert measured == ["bert", "elmo"] and sorted(prepared) == ["store", "words"]
