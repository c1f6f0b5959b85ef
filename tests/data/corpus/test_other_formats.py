"""A file of a format that Cloze does not read is named, with a command that works."""

import json
import subprocess

import pytest

from data.corpus import file_lists, sources
from data.corpus.other_formats import FORMATS, explain_other_format
from data.examples.labelled_examples import read_records


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_each_format_is_named_with_its_file(known, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"my texts{known.suffixes[0]}"
    (tmp_path / name).write_bytes(known.magic or b"x")
    with pytest.raises(ValueError, match="which Cloze does not read") as caught:
        file_lists.list_files(name, (".txt",), "another remedy")
    assert f"it is {known.name}" in str(caught.value) and f"'{name}'" in str(caught.value)
    assert "another remedy" not in str(caught.value)


def test_first_bytes_name_a_format(tmp_path):
    for known in FORMATS:
        if known.magic:
            (tmp_path / "data").write_bytes(known.magic + b"rest")
            assert f"it is {known.name}" in explain_other_format(str(tmp_path / "data"))
    (tmp_path / "data").write_bytes(b"plain text")
    assert explain_other_format(str(tmp_path / "data")) == ""
    assert explain_other_format("gs://bucket/unknown") == ""


@pytest.mark.parametrize(
    ("name", "text", "made", "expected"),
    [
        ("a b.csv", 'text,label\n"one, two",1\n', "a b.jsonl", {"text": "one, two", "label": "1"}),
        ("a b.json", '[{"text": "one"}]', "a b.jsonl", {"text": "one"}),
        ("a b.fasta", ">p 1\nMKV\nLA\n>p 2\nGG\n", "a b.txt", "MKVLA\nGG\n"),
    ],
)
def test_the_command_makes_a_file_that_is_read(name, text, made, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    command = explain_other_format(name).partition("does not read: ")[2]
    subprocess.run(["bash", "-c", command], check=True, timeout=60)
    found = (tmp_path / made).read_text()
    assert (found if made.endswith(".txt") else json.loads(found)) == expected


def test_a_folder_of_another_format_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(FileNotFoundError, match="the first: it is Parquet"):
        sources.resolve_source(str(tmp_path))


def test_labelled_files_are_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"it is Parquet.*read_parquet"):
        list(read_records(str(tmp_path / "a.parquet")))
