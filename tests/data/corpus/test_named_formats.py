"""`prepare --as FORMAT` reads files whatever their names; a file of another kind is an error."""

import gzip
import json

import pytest

from data.corpus import formats, sources
from data.prepare.build import PrepareRequest, prepare_store
from pretrain.__main__ import main
from tests.data.corpus.test_sources import read_documents

pytestmark = pytest.mark.fast
RECORDS = "".join(json.dumps({"text": text}) + "\n" for text in ("one", "two\nthree"))


def test_any_name(tmp_path):
    (tmp_path / "a.md").write_text("one\n\ntwo")
    (tmp_path / "a.train").write_text(RECORDS)
    (tmp_path / "a.fr.gz").write_bytes(gzip.compress(b"un\n\ndeux"))
    assert read_documents(tmp_path / "a.md", file_format="txt", document="block") == ["one", "two"]
    assert read_documents(tmp_path / "a.fr.gz", file_format="txt") == ["un\n\ndeux"]
    for size in (5, 1 << 20):
        found = read_documents(tmp_path / "a.train", size, file_format="jsonl")
        assert found == ["one", "two\nthree"]
    (tmp_path / "b.tab").write_text("one\tun\n")
    pair = dict(document="pair", field="source,target", file_format="tsv")
    assert read_documents(tmp_path / "b.tab", **pair) == ["one\nun"]
    (tmp_path / "c.txt").write_text(RECORDS)  # the format named precedes the one of the name
    assert read_documents(tmp_path / "c.txt", file_format="jsonl") == ["one", "two\nthree"]


def test_all_files_of_a_folder_or_a_pattern(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.md", "sub/b", "sub/.hidden.md", "c.txt"):
        (tmp_path / name).write_text(name)
    assert read_documents(tmp_path, file_format="txt") == ["a.md", "c.txt", "sub/b"]
    assert read_documents(tmp_path / "*.md", file_format="txt") == ["a.md"]
    assert sources.resolve_source(str(tmp_path), file_format="txt").ignored == ()


def test_the_formats_are_those_of_the_readers():
    assert formats.list_formats("file") == (
        "txt",
        "jsonl",
        "fasta",
        "fastq",
        "smi",
        "csv",
        "parquet",
        "arrow",
        "wet",
        "warc",
    )
    assert formats.list_formats("pair") == (
        "tsv",
        "jsonl",
        "csv",
        "parquet",
        "arrow",
        "wet",
        "warc",
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.md", {}, r"a.md: a source ends in .txt, .jsonl, .*; --as txt reads any file as .txt"),
        ("a.md", {"document": "pair"}, "--as tsv reads any file as .tsv"),
        ("*.md", {}, r"no .txt, .jsonl, .* file there; it has 2 other files .*; --as txt reads"),
        ("a.md", {"file_format": "tsv"}, "--as tsv: with --document file a file is txt or jsonl"),
        ("a.md", {"file_format": "xml"}, "--as xml: with --document file a file is txt or jsonl"),
        ("builtin", {"file_format": "txt"}, "--as txt is for files; builtin has a format of its"),
        ("tfds:x", {"file_format": "txt"}, "--as txt is for files; tfds:x has a format of its own"),
        ("none", {"file_format": "txt"}, "none: no such file or folder"),
        ("*.none", {"file_format": "txt"}, "no file there"),
        ("a.md", {"file_format": "jsonl"}, "a.md, line 1: not a JSON record"),
        ("a.md", {"file_format": "tsv", "document": "pair"}, "a.md, line 1: 0 tabs; a pair is"),
        ("packed", {"file_format": "txt"}, r"packed: it is gzip without .gz in its name, .*: gzip -dc \S+/packed > "),
        ("p.md", {"file_format": "txt"},
         r"p.md: it is Parquet; `prepare` reads it with --as parquet. As JSON lines: .* \S+/p.md > \S+/p.new.jsonl"),
        ("u16", {"file_format": "txt"}, "u16: is not UTF-8 text but UTF-16; rewrite it: iconv -f UTF-16 -t UTF-8"),
        ("p.gz", {"file_format": "txt"}, r"p.gz: it is Parquet; .*: gunzip -k \S+/p.gz && .* \S+/p > \S+/p.new.jsonl"),
    ],
)  # fmt: skip
def test_errors(tmp_path, name, options, message):
    (tmp_path / "a.md").write_text("one\n")
    (tmp_path / "packed").write_bytes(gzip.compress(b"one"))
    (tmp_path / "u16").write_bytes("one".encode("utf-16"))
    (tmp_path / "p.md").write_bytes(b"PAR1\0\0")
    (tmp_path / "p.gz").write_bytes(gzip.compress(b"PAR1\0\0"))
    name = name if name in ("builtin", "tfds:x") else str(tmp_path / name)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        read_documents(name, **options)


def test_prepare(tmp_path, words, capsys):
    """The manifest records the format; the same text under a usual name gives the same tokens."""
    text = "the fox walks .\n\nthe dog sees the fox ."
    (tmp_path / "a.md").write_text(text)
    (tmp_path / "a.txt").write_text(text)
    argv = ["prepare", "--vocabulary", words, "--held-out", "0", "--document", "block"]
    for name, more in (("a.md", ["--as", "txt"]), ("a.txt", [])):
        output = str(tmp_path / f"{name}.store")
        assert main([*argv, str(tmp_path / name), "--output", output, *more]) == 0
    stores = [
        prepare_store(
            PrepareRequest(
                (str(tmp_path / name),),
                vocabulary=words,
                held_out=0.0,
                document="block",
                file_format=file_format,
            ),
            tmp_path / f"{name}.store",
        )
        for name, file_format in (("a.md", "txt"), ("a.txt", None))
    ]
    assert all(store.existed for store in stores)
    first, second = (store.store.open_split("train").tokens.tolist() for store in stores)
    assert first == second and len(first) > 4
    assert stores[0].store.manifest["request"]["file_format"] == "txt"
    assert main([*argv, str(tmp_path / "a.md"), "--output", str(tmp_path / "none")]) == 2
    assert "--as txt reads any file as .txt" in capsys.readouterr().err
