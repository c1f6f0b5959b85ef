"""A file of a format that Cloze does not read is named, with a command that works."""

import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from data.corpus import file_lists, sources
from data.corpus.json_lines import read_json_lines, read_lines
from data.corpus.other_formats import FORMATS, explain_other_format
from data.examples.labelled_examples import read_records
from data.examples.tagged_sentences import read_sentences
from pretrain.inference import record_files

READ_BY_PREPARE = (".parquet", ".arrow", ".csv", ".fasta")
TEXT = b"one text\ntwo\n"
SEQUENCES = b">p 1\nMKVLAMKVLAMK\nLA\n>p 2\nGGGGGGGGGGGG\n"
ARTICLE = {"title": "t", "paragraphs": [{"context": "Normans", "qas": []}]}
SQUAD = json.dumps({"version": "v2.0", "data": [ARTICLE]}).encode()


def write_table(write):
    file = io.BytesIO()
    write(pyarrow.table({"text": ["one"]}), file)
    return file.getvalue()


def write_stream(table, file):
    with pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def pack(kind):
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("one.txt", "one")
    else:
        with tarfile.open(fileobj=file, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("one.txt"), io.BytesIO())
    return file.getvalue()


# {name of a format: a file of it}
CONTENTS = {
    "Parquet": write_table(pyarrow.parquet.write_table),
    "Arrow": write_table(lambda table, file: pyarrow.feather.write_feather(table, file, "lz4")),
    "a stream of Arrow": write_table(write_stream),
    "CSV": b'text,label\n"one, two",1\n',
    "SQuAD's JSON": SQUAD,
    "JSON that is no lines of JSON": b'{"rows": [\n{"text": "one"}\n]}',
    "Zstandard": b"\x28\xb5\x2f\xfd",
    "xz": lzma.compress(TEXT),
    "bzip2": bz2.compress(TEXT),
    "gzip without .gz in its name": gzip.compress(TEXT),
    "FASTA": SEQUENCES,
    "PDF": b"%PDF-1.4\n%\xe2\xe3\n",
    "Word, EPUB or HTML": b"<html>",
    "a zip": pack("zip"),
    "a tar": pack("tar"),
    "a picture": b"\x89PNG\r\n\x1a\n\0\0",
    "MIDI": b"MThd\0\0\0\6",
    "a NumPy array": b"\x93NUMPY\1\0",
}


def test_each_format_has_a_file_here():
    assert [known.name for known in FORMATS] == [*CONTENTS]


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_each_format_is_named_with_its_file(known, tmp_path, monkeypatch):
    """By the end of its name, and the folder that has it by the first of its files."""
    monkeypatch.chdir(tmp_path)
    for suffix in known.suffixes:
        name = f"my texts{suffix}"
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(ValueError, match=f"it is {known.name}") as caught:
            file_lists.list_files(name, (".txt",), "another remedy")
        assert f"'{name}'" in str(caught.value) or not known.command
        assert "another remedy" not in str(caught.value)
    if known.suffixes and not known.suffixes[0].endswith(READ_BY_PREPARE):
        with pytest.raises(FileNotFoundError, match=f"the first: it is {known.name}"):
            sources.resolve_source(str(tmp_path))


def read_corpus(path):
    (source,) = sources.split_source(sources.resolve_source(str(path)), 1 << 20, path.parent)
    return list(sources.read_chunk(source))


def read_for_any_model(path):
    return list(record_files.iterate_records(path, record_files.make_text_readers()))


@pytest.mark.parametrize(
    ("read", "suffix"),
    [
        (read_corpus, ".txt"),
        (read_corpus, ".jsonl"),
        (read_for_any_model, ".txt"),
        (read_for_any_model, ".tsv"),
        (read_for_any_model, ""),
        (lambda path: list(read_records(str(path))), ".jsonl"),
        (lambda path: list(read_records(str(path))), ".csv"),
        (lambda path: read_sentences(str(path)), ".conll"),
        (lambda path: list(read_lines(path)), ".txt"),
    ],
)
@pytest.mark.parametrize("name", [known.name for known in FORMATS if known.beginning])
def test_first_bytes_name_a_format_to_every_reader_of_text(name, read, suffix, tmp_path):
    """Nobody reads a PDF as a text a line because its name ends in .txt."""
    (tmp_path / f"data{suffix}").write_bytes(CONTENTS[name])
    with pytest.raises(ValueError, match=f"it is {name}"):
        read(tmp_path / f"data{suffix}")


def test_other_beginnings_are_text(tmp_path):
    path = tmp_path / "data.txt"
    for text in ("plain text\n", "> quoted\nHELLO WORLD\n", ">\nMKV\n", '{"text": "a"}\n', "BZh\n"):
        path.write_text(text)
        assert explain_other_format(str(path)) == ""
        assert list(read_for_any_model(path)) and read_corpus(path)
    assert explain_other_format("gs://bucket/unknown") == ""
    path.write_bytes(b"\x80\4\0\0\xff")
    with pytest.raises(ValueError, match=r"data.txt:1: not UTF-8 .* so it is a binary file"):
        list(read_lines(path))


def test_a_format_that_is_text_is_read_where_the_user_insists(tmp_path):
    path = tmp_path / "data.fasta"
    path.write_bytes(SEQUENCES)
    readers = record_files.make_text_readers()
    assert len(list(record_files.iterate_records(path, readers, "txt"))) == 5
    resolved = sources.resolve_source(str(path), "record", file_format="txt")
    (chunk,) = sources.split_source(resolved, 1 << 20, tmp_path)
    assert len(list(sources.read_chunk(chunk))) == 5


def test_packed_files_are_unpacked_first(tmp_path):
    path = tmp_path / "a b.txt.gz"
    path.write_bytes(gzip.compress(SEQUENCES))
    with pytest.raises(ValueError, match=r"it is FASTA.*: gunzip -k .* && awk") as caught:
        read_corpus(path)
    command = str(caught.value).partition("As lines: ")[2]
    subprocess.run(["bash", "-c", command], check=True, timeout=60)
    assert (tmp_path / "a b.new.txt").read_text() == "MKVLAMKVLAMKLA\nGGGGGGGGGGGG\n"


@pytest.mark.parametrize("suffix", ["", ".txt"])
@pytest.mark.parametrize("name", CONTENTS)
def test_the_command_makes_a_file_that_is_read(name, suffix, tmp_path, monkeypatch):
    """Under the format's own name, and under a text's if the first bytes tell it."""
    known = next(known for known in FORMATS if known.name == name)
    own = suffix or next(iter(known.suffixes), ".txt")
    if not known.command or not (known.beginning or own != suffix):
        pytest.skip("no command, or not named")
    tool = known.command.split()[0]
    if tool in ("zstd", "pdftotext", "pandoc") or not shutil.which(tool):
        pytest.skip(f"{tool} is not installed, or no whole file is made here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / f"a b{own}").write_bytes(CONTENTS[name])
    command = explain_other_format(f"a b{own}").partition(": ")[2]
    if name == "SQuAD's JSON":
        command = command.removeprefix("Its contexts as texts: ")
    subprocess.run(["bash", "-c", command], check=True, timeout=60)
    (made,) = (path for path in tmp_path.iterdir() if path.name != f"a b{own}")
    made = next(made.iterdir()) if made.is_dir() else made
    text = made.read_text()
    assert (
        "one" in text
        or "Normans" in text
        or text == "MKVLAMKVLAMKLA\nGGGGGGGGGGGG\n"
        or (name == "a tar" and not text)
    )
    if made.suffix == ".jsonl":
        assert [one["text"] for _, one in read_json_lines(made)]


@pytest.mark.parametrize(
    "text", ['[{"text": "one"}]', '[\n{"text": "one"}\n]', '{\n"rows": [{"text": "one"}]}',
             '{"rows": [{"text": "one"}]}'],
)  # fmt: skip
@pytest.mark.parametrize(
    "read",
    [
        read_corpus,
        lambda path: list(record_files.read_records(path)),
        lambda path: list(record_files.read_records(path.rename(path.parent / "a.json"))),
    ],
)
def test_json_that_is_no_lines_gets_a_command(read, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ValueError, match="JSON that is no lines of JSON") as caught:
        read(tmp_path / "a.jsonl")
    command = str(caught.value).partition("does not read: ")[2]
    subprocess.run(["bash", "-c", command], check=True, timeout=60)
    (made,) = {*tmp_path.glob("a*.jsonl")} - ({tmp_path / "a.jsonl"} if "new" in command else set())
    assert [one for _, one in read_json_lines(made)] == [{"text": "one"}]


@pytest.mark.parametrize(("name", "wanted"), [("a.fasta", "FASTA"), ("a.pdf", "PDF")])
def test_what_has_no_labels_gets_no_command_where_labels_are_read(name, wanted, tmp_path):
    (tmp_path / name).write_bytes(CONTENTS[wanted])
    with pytest.raises(ValueError, match=f"it is {wanted}, which has no columns: write a file of"):
        list(read_records(str(tmp_path / name)))
