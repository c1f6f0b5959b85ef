"""Texts of web archives are documents; a hostile archive is refused in one line, in little memory."""

import gzip
import tracemalloc
from typing import Any

import pytest

from data.corpus import web_archives
from data.corpus.record_texts import NOT_UTF8
from data.prepare.build import prepare_store
from data.prepare.request import PrepareRequest
from tests.data.corpus.reading import json_lines, read_documents, write_file

TEXTS = [
    "First page.\nTwo lines.",
    "Zweite Seite é 数",
    "WARC/1.0\r\nWARC-Type: conversion\r\n\r\n",
    "last",
]


def write_record(block, kind="conversion", **headers):
    """Return a record as Common Crawl writes it; a header in `headers` replaces one of its own."""
    block = block.encode() if isinstance(block, str) else block
    own = {"WARC-Type": kind, "WARC-Target-URI": f"https://a.org/{len(block)}",
           "WARC-Date": "2026-09-01T00:00:00Z", "Content-Type": "text/plain"}  # fmt: skip
    own |= {"Content-Length": len(block)} | {
        name.replace("_", "-"): text for name, text in headers.items()
    }
    lines = "".join(f"{name}: {text}\r\n" for name, text in own.items() if text is not None)
    return f"WARC/1.0\r\n{lines}\r\n".encode() + block + b"\r\n\r\n"


def write_archive(texts):
    """Return the records of a WET file."""
    return [
        write_record("software: x\r\n", "warcinfo", WARC_Target_URI=None),
        *(write_record(text, WARC_Identified_Content_Language="eng") for text in texts),
    ]


def pack_records(records):
    """Return records as .gz has them, each by itself."""
    return b"".join(map(gzip.compress, records))


@pytest.mark.parametrize("name", ["CC-MAIN-1-00000.warc.wet.gz", "a.wet", "a.warc", "a.warc.gz"])
def test_each_text_is_a_document(tmp_path, name):
    records = write_archive(TEXTS)
    records[2:2] = [write_record(b"HTTP/1.1 200 OK\r\n\r\n<p>", "response"), write_record(b"\xff", "metadata")]  # fmt: skip
    content = pack_records(records) if name.endswith(".gz") else b"".join(records)
    (tmp_path / name).write_bytes(content)
    lines = write_file(tmp_path / "a.jsonl", json_lines(*TEXTS))
    assert read_documents(tmp_path / name, size=10) == read_documents(lines)
    assert read_documents(tmp_path / name, field="uri") == [f"https://a.org/{len(text.encode())}" for text in TEXTS]  # fmt: skip
    pair: dict[str, Any] = {"document": "pair", "field": "language,text"}
    assert read_documents(tmp_path / name, **pair)[1] == f"eng\n{TEXTS[1]}"
    assert read_documents(tmp_path / name, field="WARC-Date")[0] == "2026-09-01T00:00:00Z"
    with pytest.raises(ValueError, match=rf"{name}, row 1: .*'absent'.*uri"):
        read_documents(tmp_path / name, field="absent")


def test_a_store_is_that_of_json_lines(tmp_path):
    texts = [f"The page {i} of many pages." for i in range(60)]
    sources = {"wet": "a.warc.wet.gz", "lines": "a.jsonl"}
    (tmp_path / sources["wet"]).write_bytes(pack_records(write_archive(texts)))
    write_file(tmp_path / sources["lines"], json_lines(*texts))
    tokens = set()
    for form, name in sources.items():
        request = PrepareRequest((str(tmp_path / name),), vocab_size=35, held_out=0.1)
        store = prepare_store(request, tmp_path / form).store
        tokens.add(
            b"".join(store.open_split(split).tokens[:].tobytes() for split in ("train", "heldout"))
        )
    assert len(tokens) == 1


def test_odd_archives_that_are_read(tmp_path):
    path = tmp_path / "a.wet"
    path.write_bytes(b"")
    assert read_documents(path) == []
    path.write_bytes(write_record("x", "warcinfo"))
    assert read_documents(path) == []
    record = write_record("x").replace(b"\r\n", b"\n").replace(b"WARC/1.0", b"WARC/1.1")
    folded = record.replace(b"https://a.org/1", b"<https://a.org/\n\t1>")
    path.write_bytes(b"\n\n" + folded + write_record(b"a\xff", warc_type="Conversion"))
    assert read_documents(path, field="uri") == ["https://a.org/ 1", "https://a.org/2"]
    with path.open("rb") as file:
        *_, last = web_archives.read_conversions(file, "a", file.tell)
    assert last.fields["text"] == "a\ufffd" and last.repair == NOT_UTF8


WHOLE = write_record("A text.")
HOSTILE = {
    "more than it has": (write_record("x", Content_Length=4000), "ends 3,9.* bytes before"),
    "a text beyond the limit": (write_record("x", Content_Length=(1 << 26) + 1), "more than 64 MiB"),
    "negative": (write_record("x", Content_Length=-1), "Content-Length is '-1'"),
    "signed": (write_record("x", Content_Length="+1"), r"Content-Length is '\+1'"),
    "other digits": (write_record("x", Content_Length="\u0661"), "no number of bytes"),
    "long number": (write_record("x", Content_Length="9" * 5000), "Content-Length is '9{40}'"),
    "none": (write_record("x", Content_Length=None), "Content-Length is ''"),
    "two": (write_record("x", content_length=3), "two headers Content-Length"),
    "large header": (write_record("x", WARC_X="y" * (1 << 17)), "headers of more than 64 KiB"),
    "many headers": (write_record("x", WARC_X=f"\r\nA: {'b' * 90}" * 800), "more than 64 KiB"),
    "endless line": (b"\0" * (1 << 20), "begins with b'.*', not with WARC/1.0"),
    "no colon": (write_record("x", WARC_X="\r\nabc"), "'abc' is no header"),
    "cut in headers": (WHOLE[:40], "ends within its headers"),
    "cut in the text": (WHOLE[:-6], "ends 2 bytes before the record does"),
    "text that is longer": (write_record("x" * 50, Content_Length=3), "record 2: begins with b'xxx"),
    "pages only": (write_record("HTTP/1.1 200 OK", "response"), "name the .wet file"),
    "HTML": (b"<html>", "begins with b'<html>'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives(tmp_path, name):
    content, message = HOSTILE[name]
    for path in (tmp_path / "a.wet", tmp_path / "a.wet.gz"):
        write_file(path, content)
        tracemalloc.start()
        with pytest.raises(ValueError, match=rf"^{path}.*{message}") as caught:
            read_documents(path)
        assert "\n" not in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_a_member_that_is_cut_off_and_a_bomb(tmp_path):
    packed = pack_records([WHOLE, WHOLE])
    for end in (len(packed) - 1, len(packed) - 9, len(packed) // 2 + 5):
        (tmp_path / "a.wet.gz").write_bytes(packed[:end])
        with pytest.raises(ValueError, match="a.wet.gz: the gzip file is broken or cut off"):
            read_documents(tmp_path / "a.wet.gz")
    bomb = write_record(bytes(1 << 24), "response")  # 16 kB, of which 16 MiB are skipped
    (tmp_path / "b.wet.gz").write_bytes(pack_records([bomb, WHOLE]))
    del bomb
    tracemalloc.start()
    assert read_documents(tmp_path / "b.wet.gz") == ["A text."]
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
