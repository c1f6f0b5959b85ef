import dataclasses
import gzip
import json
import os

import numpy as np
import pytest

from data.corpus import lines, readers, sources
from data.corpus.record_texts import NOT_UTF8, SURROGATES
from tests.data.corpus.reading import json_lines, read_documents, write_file

BOM = "\ufeff"


TEXT = "one\nline\n\n \t\ntwo\n\n\nthree, the last"


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_text_files(tmp_path, suffix):
    path = write_file(tmp_path / f"a{suffix}", BOM + TEXT)
    assert read_documents(path) == [TEXT]
    assert read_documents(path, document="block") == ["one\nline", "two", "three, the last"]
    assert read_documents(path, document="record") == ["one", "line", "two", "three, the last"]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_json_lines(tmp_path, suffix):
    path = write_file(
        tmp_path / f"a{suffix}",
        BOM + "\n" + json_lines("eins\nzwei", "drei", field="body") + "  \n",
    )
    assert read_documents(path, field="body") == ["eins\nzwei", "drei"]


def test_windows_line_ends(tmp_path):
    path = write_file(tmp_path / "a.txt", TEXT.replace("\n", "\r\n"))
    assert read_documents(path, document="block") == ["one\r\nline", "two", "three, the last"]
    assert read_documents(path, document="record") == ["one", "line", "two", "three, the last"]


@pytest.mark.parametrize("document", ["block", "record"])
def test_cuts_do_not_change_the_documents(tmp_path, document):
    """Each document is read once, in order, with its line, wherever a file is split."""
    random = np.random.default_rng(0)
    for trial in range(60):
        texts = random.choice(["a", "bb é", "数", "", "", " ", "x" * 30], random.integers(1, 14))
        path = write_file(
            tmp_path / f"{trial}.txt", "\n".join(texts) + random.choice(["", "\n", "\n\n"])
        )
        whole = read_documents(path, document=document)
        first_lines = [
            texts.tolist().index(text) + 1 for text in set(whole) if list(texts).count(text) == 1
        ]
        found = sources.resolve_source(path, document)
        for size in range(1, min(found.size, 40) + 1):
            pieces = list(sources.split_source(found, size, None))
            assert [piece.start for piece in pieces] == list(
                range(0, found.size, size)
            ) or not found.size
            records = [(piece, record) for piece in pieces for record in sources.read_chunk(piece)]
            assert [record.raw.decode().strip() for _, record in records] == whole
            numbers = [
                lines.find_line_number(piece.path, piece.start, record.line)
                for piece, record in records
            ]
            assert numbers == sorted(numbers) and set(first_lines) <= set(numbers)


def test_cuts_do_not_change_json_records(tmp_path):
    path = write_file(tmp_path / "a.jsonl", json_lines(*(f"text {i} {'é' * i}" for i in range(20))))
    for size in (1, 7, 64, 333, 10_000):
        assert read_documents(path, size=size) == [f"text {i} {'é' * i}".strip() for i in range(20)]


def test_folders_and_patterns(tmp_path):
    (tmp_path / "sub" / ".hidden").mkdir(parents=True)
    for name in (
        "b.txt", "a.jsonl", "sub/c.txt.gz", "sub/.hidden/d.txt", ".e.txt", "README.md",
        "sub/f.css",
    ):  # fmt: skip
        write_file(tmp_path / name, json_lines(name) if "jsonl" in name else name)
    os.symlink(tmp_path, tmp_path / "sub" / "circle")
    assert read_documents(tmp_path) == ["a.jsonl", "b.txt", "sub/c.txt.gz"]
    assert [os.path.basename(name) for name in sources.resolve_source(str(tmp_path)).ignored] == [
        "README.md",
        "f.css",
    ]
    assert read_documents(tmp_path / "*.txt") == ["b.txt"]
    assert read_documents(tmp_path / "**" / "[bc].txt*") == ["b.txt", "sub/c.txt.gz"]


def test_pipes_are_not_read(tmp_path):
    """In a folder they are ignored; by its name a pipe is refused."""
    write_file(tmp_path / "a.txt", "one")
    os.mkfifo(tmp_path / "b.txt")
    for name in (tmp_path, tmp_path / "*.txt"):
        found = sources.resolve_source(str(name))
        assert [path for path, *_ in found.files] == [str(tmp_path / "a.txt")]
        assert found.ignored == (str(tmp_path / "b.txt"),)
    with pytest.raises(ValueError, match="b.txt: is a named pipe; expected a regular file"):
        sources.resolve_source(str(tmp_path / "b.txt"))


def test_identity_changes_with_the_files(tmp_path):
    path = write_file(tmp_path / "a.txt", "one")
    first = sources.resolve_source(path).identify_source()
    assert sources.resolve_source(path).identify_source() == first
    os.utime(path, ns=(1, 1))
    later = sources.resolve_source(path).identify_source()
    write_file(tmp_path / "a.txt", "other")
    os.utime(path, ns=(1, 1))
    assert (
        len(
            {
                json.dumps(identity)
                for identity in (first, later, sources.resolve_source(path).identify_source())
            }
        )
        == 3
    )


def test_sources_that_are_not_there(tmp_path):
    write_file(tmp_path / "a.css", "x")
    (tmp_path / "empty").mkdir()
    for error, message, name in [
        (FileNotFoundError, "nowhere: no such file or folder", tmp_path / "nowhere"),
        (FileNotFoundError, r"no such file or folder", tmp_path / "nowhere.txt"),
        (FileNotFoundError, r"\*\.txt: no .txt, .jsonl", tmp_path / "*.txt"),
        (FileNotFoundError, r"empty: no .txt, .jsonl", tmp_path / "empty"),
        (FileNotFoundError, r"it has 1 other files \(.*a.css", tmp_path),
        (ValueError, "a.css: a source ends in", tmp_path / "a.css"),
        (ValueError, "is named tfds:NAME", "tfds:"),
    ]:
        with pytest.raises(error, match=message):
            sources.resolve_source(str(name))
    with pytest.raises(ValueError, match="--document page: one of file, block, record"):
        sources.resolve_source(str(tmp_path / "a.css"), "page")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"txt": "x"}', "no field 'text' in the record, which is an object with 'txt'; --field"),
        ('["x"]', "no field 'text' in the record, which is list"),
        ('{"text": null}', "field 'text' is NoneType, not a text"),
        ('{"text": 3}', "field 'text' is int"),
        ('{"text": "x"', "not a JSON record"),
        ("[" * 100_000, "not a JSON record"),
        ('{"text": ' + "9" * 5000 + "}", "not a JSON record"),
        ("__import__('os').system('false')", "not a JSON record"),
    ],
)
@pytest.mark.parametrize("size", [16, 1 << 20])
def test_bad_records_are_errors_that_name_file_and_line(tmp_path, line, message, size):
    path = write_file(
        tmp_path / "a.jsonl", json_lines("one", "two") + "\n" + line + "\n" + json_lines("four")
    )
    with pytest.raises(ValueError, match=r"a\.jsonl, line 4: " + message):
        read_documents(path, size=size)


def test_a_record_of_too_many_values_is_refused_and_a_long_text_is_not(tmp_path):
    path = write_file(tmp_path / "a.jsonl", '{"text": "x", "y": [' + "[]," * 1_500_000 + "[]]}")
    message = r"a\.jsonl, line 1: the JSON record has about 3,000,00\d values of JSON; at most 2,"
    with pytest.raises(ValueError, match=message):
        read_documents(path)
    text = 'a, b: [c], "d"\\ ' * 500_000
    (read,) = read_documents(write_file(tmp_path / "b.jsonl", json_lines(text)))
    assert read.strip() == text.strip()


def test_invalid_utf8_is_repaired_and_reported(tmp_path):
    write_file(tmp_path / "a.txt", b"caf\xe9 one\n\nfine\n\n\xff\xfe")
    write_file(
        tmp_path / "a.jsonl",
        b'{"text": "caf\xe9"}\n'
        + rb'{"text": "half \ud83d pair"}'
        + b"\n"
        + rb'{"text": "\ud83d\ude42"}',
    )
    for name, options, texts, mended in [
        ("a.txt", {"document": "block"}, ["caf\ufffd one", "fine", "\ufffd\ufffd"], [NOT_UTF8, None, NOT_UTF8]),
        ("a.jsonl", {}, ["caf\ufffd", "half \ufffd pair", "🙂"], [NOT_UTF8, SURROGATES, None]),
    ]:  # fmt: skip
        (piece,) = sources.split_source(
            sources.resolve_source(str(tmp_path / name), **options), 1 << 20, None
        )
        records = list(sources.read_chunk(piece))
        assert [record.raw.decode().strip() for record in records] == texts
        assert [record.repair for record in records] == mended


def test_a_line_of_50_mb(tmp_path):
    word = "many words in one line "
    path = write_file(tmp_path / "a.txt", "short\n" + word * (50_000_000 // len(word)) + "\nshort")
    for size in (1 << 22, 1 << 30):
        read = read_documents(path, size=size, document="record")
        assert [len(text) for text in read] == [5, 50_000_000 // len(word) * len(word) - 1, 5]


@pytest.mark.parametrize("document", ["file", "block", "record"])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
def test_a_document_beyond_the_limit_is_an_error_before_it_is_in_memory(
    tmp_path, monkeypatch, document, suffix
):
    monkeypatch.setattr(lines, "MAX_DOCUMENT_BYTES", 1000)
    path = write_file(
        tmp_path / f"a{suffix}",
        "short\n\n" + ("line\n" * 300 if document == "block" else "x" * 2000),
    )
    line = 1 if document == "file" else 3
    with pytest.raises(
        ValueError, match=rf"a{suffix}, line {line}: a document of more than 0 MiB; .* --document"
    ):
        read_documents(path, document=document)


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-20],
        lambda raw: b"not gzip",
        lambda raw: raw[:50] + b"\x00" * 50 + raw[100:],
    ],
)
def test_broken_gzip_files(tmp_path, damage):
    path = tmp_path / "a.jsonl.gz"
    records = json_lines(*(str(n) for n in np.random.default_rng(0).integers(0, 1 << 60, 500)))
    path.write_bytes(damage(gzip.compress(records.encode())))
    with pytest.raises(ValueError, match="a.jsonl.gz: the gzip file is broken or cut off"):
        read_documents(path)


def test_reading_writes_nothing(tmp_path):
    """A gzip header may contain a file name with a path; the name is ignored."""
    folder = tmp_path / "in"
    folder.mkdir()
    with gzip.GzipFile("../../evil.txt", "wb", fileobj=open(folder / "a.txt.gz", "wb")) as file:
        file.fileobj_to_close = file.fileobj
        file.write(b"text")
    file.fileobj_to_close.close()
    before = sorted(tmp_path.rglob("*"))
    assert read_documents(folder) == ["text"]
    assert sorted(tmp_path.rglob("*")) == before


BAD_FILES = {
    "a.jsonl": ("record", '{"text": "one"}\nno json\n{"body": 1}\n\n[1]\n{"text": 3}\n{"text": "two"}\n'),
    "a.tsv": ("pair", "one\tein\nnone\n\ttwo\na\tb\tc\ntwo\tzwei\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("size", [1, 10, 1 << 20])
def test_bad_records_are_skipped_and_counted_where_that_is_asked_for(tmp_path, name, size):
    document, text = BAD_FILES[name]
    (tmp_path / name).write_text(text)
    source = sources.resolve_source(str(tmp_path / name), document)
    with pytest.raises(ValueError, match=f"{name}, line 2: (not a JSON record|0 tabs)"):
        read_all(source, size)
    skipping = dataclasses.replace(source, skips_bad=True)
    documents = read_all(skipping, size)
    assert [raw.split(b"\n")[0] for raw, _ in documents if raw] == [b"one", b"two"]
    assert [repair for raw, repair in documents if not raw] == [readers.BAD_RECORDS] * (4 if name == "a.jsonl" else 3)  # fmt: skip


def read_all(source, size):
    chunks = sources.split_source(source, size, None)
    return [(each.raw, each.repair) for chunk in chunks for each in sources.read_chunk(chunk)]
