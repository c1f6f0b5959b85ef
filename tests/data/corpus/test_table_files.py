"""Tables give the documents that the same records as JSON lines give."""

import contextlib
import csv
import io
import itertools
import json
import random
import tracemalloc
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from data import members
from data.corpus import readers, sources
from data.corpus.byte_files import open_bytes
from data.corpus.record_texts import NOT_UTF8
from tests.data.corpus.reading import json_lines, read_documents, write_file

TEXTS = ["One line.", "two\nlines, with a comma", 'a "quoted" word', "数 and é", "", "last"]
TYPES = {
    "string": pyarrow.string(),
    "large_string": pyarrow.large_string(),
    "string_view": pyarrow.string_view(),
    "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
}


def write_parquet(path, table, **options):
    pyarrow.parquet.write_table(table, path, **options)
    return str(path)


def write_arrow(path, table, kind="stream", rows=2):
    make = pyarrow.ipc.new_stream if kind == "stream" else pyarrow.ipc.new_file
    with pyarrow.OSFile(str(path), "wb") as file, make(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def write_csv(path, columns):
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return write_file(path, file.getvalue())


def list_rows(path, size=1 << 20, **options):
    found = sources.resolve_source(str(path), **options)
    return [
        (row.line, row.raw.decode())
        for piece in sources.split_source(found, size, None)
        for row in sources.read_chunk(piece)
    ]


# ---- the same documents ------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "file.arrow"])
def test_every_type_of_text(tmp_path, kind, suffix):
    column = pyarrow.array(TEXTS, pyarrow.string())
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(TYPES[kind])
    table = pyarrow.table({"id": range(len(TEXTS)), "text": column})
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        try:
            write_parquet(path, table)
        except pyarrow.ArrowNotImplementedError as error:  # pyarrow 20, of string_view
            pytest.skip(f"pyarrow {pyarrow.__version__}: {error}")
    else:
        write_arrow(path, table, "stream" if suffix == "arrow" else "file")
    assert read_documents(path) == read_documents(
        write_file(tmp_path / "a.jsonl", json_lines(*TEXTS))
    )


def test_csv(tmp_path):
    path = write_csv(tmp_path / "a.csv", {"id": range(len(TEXTS)), "text": TEXTS})
    assert read_documents(path) == TEXTS
    raw = (tmp_path / "a.csv").read_bytes()
    marked = write_file(tmp_path / "b.csv", b"\xef\xbb\xbf" + raw)
    assert read_documents(marked, field="id") == [str(i) for i in range(len(TEXTS))]
    packed = write_file(tmp_path / "c.csv.gz", raw)
    assert read_documents(packed) == TEXTS


def test_pairs_and_articles(tmp_path):
    records = [
        {"source": "one", "target": "eins", "authors": ["A", "B"]},
        {"source": "two", "target": "zwei", "authors": None},
        {"source": "three\nlines", "target": "drei", "authors": []},
    ]
    lines = write_file(tmp_path / "a.jsonl", "".join(json.dumps(one) + "\n" for one in records))
    table = pyarrow.Table.from_pylist(records)
    paths = [
        write_parquet(tmp_path / "a.parquet", table), write_arrow(tmp_path / "a.arrow", table)
    ]  # fmt: skip
    pair: dict[str, Any] = {"document": "pair", "field": "source,target"}
    article: dict[str, Any] = {"document": "fields", "field": "target,authors,absent"}
    for path in paths:
        assert list_rows(path, **pair) == list_rows(lines, **pair)
        assert list_rows(path, **article) == list_rows(lines, **article)


def test_a_path_leads_into_nested_columns(tmp_path):
    records = [{"a": {"b": {"c": "one"}, "d": 1}}, {"a": {"b": {"c": "two"}, "d": 2}}]
    table = pyarrow.Table.from_pylist(records)
    lines = write_file(tmp_path / "a.jsonl", "".join(json.dumps(one) + "\n" for one in records))
    for path in (lines, write_parquet(tmp_path / "a.parquet", table),
                 write_arrow(tmp_path / "a.arrow", table)):  # fmt: skip
        assert read_documents(path, field="a.b.c") == ["one", "two"]
    comma = pyarrow.table({"a,b": ["one field"]})
    lines = write_file(tmp_path / "c.jsonl", '{"a,b": "one field"}\n')
    for path in (lines, write_parquet(tmp_path / "c.parquet", comma)):
        assert read_documents(path, field="a,b") == ["one field"]
    flat = write_parquet(tmp_path / "b.parquet", pyarrow.table({"a.b": ["literal"]}))
    assert read_documents(flat, field="a.b") == ["literal"]


@pytest.mark.parametrize("rows", [1, 3, 300, 1000])
def test_cuts_do_not_change_the_rows(tmp_path, rows):
    """Each row is read once, in order, with its number, wherever a file is split."""
    choose = random.Random(rows)
    texts = [
        f"{i} " + "x" * choose.randrange(40) for i in range(rows * 3 + 1 if rows < 9 else 1000)
    ]
    path = write_parquet(
        tmp_path / "a.parquet", pyarrow.table({"text": texts}), row_group_size=rows
    )
    for num_pieces in (1, 2, 7, 40):
        size = -(-(tmp_path / "a.parquet").stat().st_size // num_pieces)
        assert list_rows(path, size) == list(enumerate(texts, 1))


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_packed_lines(tmp_path, packing):
    zstandard = pytest.importorskip("zstandard")
    raw = json_lines(*TEXTS).encode()
    if packing == "zst":  # two frames, the first without its size, and one to skip
        half = raw.index(b"\n") + 1
        first = zstandard.ZstdCompressor().compressobj()
        packed = first.compress(raw[:half]) + first.flush()
        packed += b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.compress(raw[half:])
        path = tmp_path / "a.jsonl.zst"
        path.write_bytes(packed)
    else:
        path = write_file(tmp_path / "a.jsonl.gz", raw)
    assert read_documents(path) == TEXTS


def test_a_dataset_that_was_saved_to_disk(tmp_path):
    folder = tmp_path / "train"
    folder.mkdir()
    names = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]
    for name, text in zip(names, ("one", "two"), strict=True):
        write_arrow(folder / name, pyarrow.table({"text": [text]}))
    (folder / "cache-0a.arrow").write_bytes(b"left by a map")
    state = {"_data_files": [{"filename": name} for name in names]}
    (folder / "state.json").write_text(json.dumps(state))
    assert read_documents(folder) == ["one", "two"]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ValueError, match=r"the splits train, test; name one of them: \S*/train$"):
        sources.resolve_source(str(tmp_path))
    (folder / "state.json").write_text('{"_data_files": [{"filename": "../secret.arrow"}]}')
    with pytest.raises(ValueError, match="'../secret.arrow' is not the name of a file beside it"):
        sources.resolve_source(str(folder))
    (folder / "state.json").write_text('{"_data_files": [{"filename": "gone.arrow"}]}')
    with pytest.raises(FileNotFoundError, match="gone.arrow: no such file, but"):
        sources.resolve_source(str(folder))


# ---- errors and repairs ------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_bytes_that_are_no_utf8_are_replaced(tmp_path, suffix):
    raw = pyarrow.array([b"good", b"b\xffd", None], pyarrow.binary())
    column = pyarrow.Array.from_buffers(pyarrow.string(), 3, raw.buffers())
    table = pyarrow.table({"text": column})
    write = write_parquet if suffix == "parquet" else write_arrow
    path = write(tmp_path / f"a.{suffix}", table)
    found = sources.resolve_source(path)
    found = sources.dataclasses.replace(found, skips_bad=True)
    (piece,) = sources.split_source(found, 1 << 20, tmp_path)
    rows = list(sources.read_chunk(piece))
    assert [row.raw.decode() for row in rows] == ["good", "b\ufffdd", ""]
    assert [row.repair for row in rows] == [None, NOT_UTF8, readers.BAD_RECORDS]


def test_a_row_without_a_text_is_named(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", pyarrow.table({"text": ["one", None, "three"]}))
    with pytest.raises(ValueError, match="a.parquet, row 2: field 'text' is NoneType, not a text"):
        read_documents(path)
    path = write_parquet(tmp_path / "b.parquet", pyarrow.table({"text": [b"\x80\x04pickled"]}))
    with pytest.raises(ValueError, match="b.parquet, row 1: field 'text' is bytes, not a text"):
        read_documents(path)


def test_a_column_that_is_missing_is_named(tmp_path):
    table = pyarrow.Table.from_pylist([{"body": "one", "meta": {"url": "x"}}])
    for path in (write_parquet(tmp_path / "a.parquet", table),
                 write_arrow(tmp_path / "a.arrow", table)):  # fmt: skip
        with pytest.raises(ValueError, match=r"no column 'text'; it has body, meta\.url; --field"):
            read_documents(path)
    twice = pyarrow.table([["one"], ["two"]], names=["text", "text"])
    for path in (write_parquet(tmp_path / "b.parquet", twice),
                 write_arrow(tmp_path / "b.arrow", twice)):  # fmt: skip
        with pytest.raises(ValueError, match=r"b\.\w+: 2 columns are called 'text'"):
            read_documents(path)
    path = write_csv(tmp_path / "a.csv", {"body": ["one"], "url": ["x"]})
    with pytest.raises(ValueError, match="line 1: no column 'text'; the first line has body, url"):
        read_documents(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("text\none,two\n", "a.csv, line 2: 2 fields instead of 1, which the first line has"),
        ('text\n"one\n', "a.csv, line 2: unexpected end of data"),
        ("", "a.csv: no column 'text'; the first line has no text"),
        ("text,text\none,two\n", "a.csv, line 1: the first line: 2 columns are called 'text'"),
    ],
)
def test_a_broken_row_of_csv_is_named(tmp_path, text, problem):
    with pytest.raises(ValueError, match=problem):
        read_documents(write_file(tmp_path / "a.csv", text))


@pytest.mark.parametrize(
    ("name", "library"), [("a.parquet", "pyarrow"), ("a.jsonl.zst", "zstandard")]
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, name, library, monkeypatch):
    monkeypatch.setattr(members, "has_module", lambda _: False)
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=rf"{name}: \w+ it needs {library}: .* -e '.\[parquet\]'"):
        read_documents(tmp_path / name)


def test_a_table_of_another_encoding_is_named(tmp_path):
    path = write_file(tmp_path / "a.csv", "text\none\n".encode("utf-16"))
    with pytest.raises(ValueError, match="a.csv: is not UTF-8 text but UTF-16; rewrite it: iconv"):
        read_documents(path)


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "file.arrow", "jsonl.zst"])
def test_a_file_that_is_cut_off_is_an_error(tmp_path, suffix):
    zstandard = pytest.importorskip("zstandard")
    table, path = (
        pyarrow.table({"text": [str(i) * 50 for i in range(500)]}),
        tmp_path / f"a.{suffix}",
    )
    if suffix == "parquet":
        write_parquet(path, table)
    elif suffix == "jsonl.zst":
        path.write_bytes(zstandard.compress(json_lines(*map(str, range(5000))).encode()))
    else:
        write_arrow(path, table, "stream" if suffix == "arrow" else "file")
    whole = path.read_bytes()
    choose = random.Random(0)
    for size in (1, 5, 30, *(choose.randrange(40, len(whole) - 8) for _ in range(20))):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"broken or cut off|is not the file|empty"):
            read_documents(path)


def test_a_bomb_of_zstandard_is_unpacked_a_little_at_a_time(tmp_path):
    zstandard = pytest.importorskip("zstandard")
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(128)) + packer.flush()
    (tmp_path / "a.zst").write_bytes(packed)
    assert len(packed) < 20_000
    tracemalloc.start()
    with contextlib.ExitStack() as stack:
        file, _ = open_bytes(str(tmp_path / "a.zst"), stack)
        assert sum(map(len, iter(lambda: file.read(1 << 20), b""))) == 128 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 << 20


def test_a_bomb_of_parquet_is_copied_a_few_rows_at_a_time(tmp_path):
    """One text of 4 MiB, which each of 256 rows names: 1 GiB of a file of less than 1 kB."""
    index = pyarrow.array([0] * 256, pyarrow.int32())
    column = pyarrow.DictionaryArray.from_arrays(index, pyarrow.array(["x" * (4 << 20)]))
    options: dict[str, Any] = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30}
    path = write_parquet(tmp_path / "a.parquet", pyarrow.table({"text": column}), **options)
    assert (tmp_path / "a.parquet").stat().st_size < 1000
    tracemalloc.start()
    rows = itertools.islice(readers.read_file(path, "parquet", 0, None, "text"), 40)
    assert [len(row.raw) for row in rows] == [4 << 20] * 40
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 << 20
