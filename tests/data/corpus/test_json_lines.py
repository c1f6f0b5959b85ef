"""Line files: locations, line ends, byte order marks, gzip, and files of killed writers."""

import contextlib
import gzip
import json
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from data.corpus import json_lines, untrusted
from data.corpus.byte_files import find_wide_encoding, open_bytes, peek_head, refuse_head
from data.corpus.json_lines import (
    format_json,
    format_json_lines,
    open_text,
    parse_json_lines,
    read_json_lines,
    read_lines,
)

TEXT = some.text('",:[{\\x\u2200\ud83d', max_size=6)
JSON = some.recursive(
    some.none() | some.integers() | TEXT,
    lambda inner: some.lists(inner) | some.dictionaries(TEXT, inner),
)


def remove_texts(value):
    """Return a JSON value without the characters of its texts; the keys are numbers."""
    if isinstance(value, dict):
        return {i: remove_texts(each) for i, each in enumerate(value.values())}
    if isinstance(value, list):
        return [remove_texts(each) for each in value]
    return "" if isinstance(value, str) else value


@pytest.mark.parametrize("name", ["lines.txt", "lines.txt.gz"])
def test_lines_have_their_places_and_nothing_around_them(tmp_path, name):
    path = tmp_path / name
    # A carriage return and a line separator within a line do not end it. Each of two concatenated
    # files begins with a byte order mark.
    content = "\ufeffone\r\n\n \t\ntwo\rhalves\u2028and more\n\ufeffthree".encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_lines(path)) == [
        (f"{path}:1", "one"),
        (f"{path}:4", "two\rhalves\u2028and more"),
        (f"{path}:5", "three"),
    ]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"a": 1}\n[2]\n', "lines.jsonl:2: expected a JSON object, not '[2]'"),
        (b'\n{"a": 1}\n{"a": \n', "lines.jsonl:3: not JSON (Expecting value, at character 7)"),
        (b'{"a": 1}\n{"a": "\xe9"}\n', "lines.jsonl:2: not UTF-8"),
    ],
)
def test_a_line_without_an_object_is_named(tmp_path, content, error):
    (tmp_path / "lines.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(error)):
        list(read_json_lines(tmp_path / "lines.jsonl"))


def test_a_line_of_too_many_values_is_named(tmp_path):
    (tmp_path / "lines.jsonl").write_text('{"a": [' + "0," * 2_200_000 + "0]}\n")
    with pytest.raises(ValueError, match=r"lines.jsonl:1: has about 2,200,00\d values of JSON"):
        list(read_json_lines(tmp_path / "lines.jsonl"))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(value=JSON, block=some.integers(1, 40), ensure_ascii=some.booleans())
def test_values_are_counted_outside_of_texts(value, block, ensure_ascii):
    line = json.dumps(value, ensure_ascii=ensure_ascii)
    marks = sum(json.dumps(remove_texts(value)).count(mark) for mark in "[{,:")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(untrusted, "SHORT_BYTES", 0)
        patch.setattr(untrusted, "BLOCK_BYTES", block)
        assert untrusted.find_excess_of_line(line, marks) is None
        excess = untrusted.find_excess_of_line(line.encode("utf-8", "surrogatepass"), marks - 1)
    assert excess == f"has about {marks:,} values of JSON; at most {marks - 1:,} are read"


def test_a_file_that_is_absent_or_cut_off_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.txt: no such file"):
        list(read_lines(tmp_path / "absent.txt"))
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"text " * 1000)[:-12])
    broken = pytest.raises(ValueError, match=r"cut\.txt\.gz: the gzip file is broken or cut off")
    with broken, open_text(tmp_path / "cut.txt.gz") as file:
        file.read()


def test_what_is_no_file_is_named_as_what_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "a folder"), (tmp_path / "pipe", "a named pipe")):
        with pytest.raises(ValueError, match=f"{path}: is {kind}; expected a regular file"):
            list(read_lines(path))


def test_an_incomplete_last_line_is_left_out_and_no_other():
    rows = [{"step": 1, "text": "größer\u2028"}, {"step": 2, "text": None}]
    for ensure_ascii in (True, False):
        text = format_json_lines(rows, ensure_ascii)
        assert text.isascii() == ensure_ascii and text.count("\n") == 2
        assert parse_json_lines(text) == rows and parse_json_lines(text + '{"step"') == rows
        assert parse_json_lines(text[:-1]) == rows[:1]
        with pytest.raises(ValueError, match="Expecting"):
            parse_json_lines('{"step"\n' + text)
    assert parse_json_lines("") == [] == parse_json_lines(format_json_lines([]))


WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("suffix", ["txt", "jsonl", "jsonl.gz"])
def test_a_wide_encoding_is_named(tmp_path, encoding, suffix):
    path = tmp_path / f"a.{suffix}"
    content = "a text\n{}\n".encode(encoding)
    path.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    for read in (lambda: list(read_lines(path)), lambda: list(read_documents(path))):
        with pytest.raises(ValueError, match=f"not UTF-8 text but {name}; rewrite it: iconv"):
            read()


def read_documents(path):
    with contextlib.ExitStack() as stack:
        file, _ = open_bytes(str(path), stack)
        refuse_head(peek_head(file), str(path))
        yield from file


@pytest.mark.parametrize("content", [b"", b"a", b"a\0b", b"\0\0\0\0", "Ä text".encode(), bytes(9)])
def test_other_bytes_are_no_wide_encoding(content):
    assert find_wide_encoding(content) is None


def refuse_constant(name):
    raise AssertionError(name)


def test_json_that_is_printed_has_no_nan():
    value = {"nan": float("nan"), "scores": [float("inf"), 1.5, -float("inf")], "é": True}
    text = format_json(value, ensure_ascii=False)
    assert json.loads(text, parse_constant=refuse_constant) == {
        "nan": None,
        "scores": [None, 1.5, None],
        "é": True,
    }
    assert "é" in text and "\n" in format_json(value, indent=1)


def test_a_line_that_unpacks_to_more_than_the_bound_is_refused(tmp_path):
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "a"}\n{"text": "' + b"a" * 300_000_000 + b'"}\n', 1))
    lines = read_json_lines(path)
    assert next(lines)[1] == {"text": "a"}
    with pytest.raises(ValueError, match=rf"^{path}:2: a line of more than 16,777,216 characters"):
        next(lines)


def test_a_whole_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_FILE", 1000)
    (tmp_path / "squad.json").write_text("x" * 1001)
    with (
        pytest.raises(ValueError, match="squad.json: more than 1,000 characters"),
        open_text(tmp_path / "squad.json") as file,
    ):
        file.read()
    (tmp_path / "squad.json").write_text("x" * 1000)
    with open_text(tmp_path / "squad.json") as file:
        assert file.read() == "x" * 1000


@pytest.mark.parametrize("newline", ["", "\n"])
def test_a_bounded_file_has_the_lines_of_python(tmp_path, newline):
    (tmp_path / "lines").write_bytes(b"a\rb\r\nc\n\nd")
    with open_text(tmp_path / "lines", newline) as file:
        lines = list(file)
    with open(tmp_path / "lines", encoding="utf-8", newline=newline) as file:
        assert lines == list(file)
