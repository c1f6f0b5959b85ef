"""Any configuration or corpus is either accepted, or refused in one line that names the key or the
file.
"""

import dataclasses
import gzip
import itertools
import json
import math
import os
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from data.corpus.readers import FORMAT_READERS, read_file
from pretrain.config import Run, from_json, load, to_json
from pretrain.settings.overrides import ConfigError

EXAMPLES = 3000 if os.environ.get("CLOZE_BOARD") == "whole" else 300
often = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)


def keys_of(node, path=""):
    for field in dataclasses.fields(node):
        value, key = getattr(node, field.name), f"{path}.{field.name}".lstrip(".")
        yield key
        if dataclasses.is_dataclass(value):
            yield from keys_of(value, key)


TINY = load("bert_tiny")
KEYS = list(keys_of(TINY))
ASCII = some.text(string.printable, max_size=12)  # words of a shell; more letters are below
NUMBERS = (
    some.integers().map(str)
    | some.floats().map(repr)
    | some.integers(300, 5000).map(lambda n: "9" * n)
    | some.just("1e999")
)
NESTS = some.tuples(
    some.sampled_from(["(", "[", "-", "{", "not ", "b'", "~"]), some.integers(1, 5000)
).map(lambda one: one[0] * one[1])
VALUES = some.one_of(
    *(ASCII, some.text(max_size=8), NUMBERS, NESTS),
    some.sampled_from(
        [
            "true",
            "None",
            "AdamW",
            "t5config",
            "CausalLm",
            "",
            "()",
            "(1,)",
            "1,2.5",
            "[1, [2]]",
            "{}",
            "0x1f",
            "1_0",
            "1j",
            "'a\\d'",
            "1if 1else 2",
        ]
    ),
    some.lists(NUMBERS, max_size=3).map(",".join),
)
NAMES = some.one_of(
    some.sampled_from(KEYS),
    some.sampled_from(KEYS).flatmap(lambda key: ASCII.map(lambda more: f"{key}.{more}")),
    ASCII,
)


def is_sound(run):
    """A run that is accepted can be written and read, and all its numbers are finite."""
    assert from_json(to_json(run)) == run
    assert all(math.isfinite(value) for value in list_numbers(run))
    return True


def list_numbers(node):
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(one):
                yield from list_numbers(one)
            elif isinstance(one, (int, float)):
                yield one


@often
@given(some.lists(some.tuples(NAMES, VALUES), min_size=1, max_size=3))
@example([("optimizer.learning_rate", "9" * 400)])
@example([("optimizer.learning_rate", "1e999")])
@example([("train.steps", "-" * 5000 + "1")])
@example([("data.rates", "(" * 300)])
@example([("optimizer.learning_rate", "0x" + "f" * 5000)])
@example([("train.steps", "0x" + "f" * 5000)])
@example([("optimizer", "a\nb")])
@example([("a\nb", "1")])
def test_any_words_are_a_run_or_one_line_that_names_one_of_them(words):
    try:
        assert is_sound(load("bert_tiny", [f"{key}={value}" for key, value in words]))
    except ConfigError as error:
        message = str(error)
        assert len(message.splitlines()) == 1, message
        named = [
            key
            for key, _ in words
            if key.partition("=")[0].split(".")[-1] in message or repr(key)[1:-1] in message
        ]
        assert named or message.startswith(
            ("mesh ", "data.objective: ", "checkpoint.best", "'=")
        ), message


JSON = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text(max_size=6)
    | some.sampled_from(["Run", "AdamW", "BertConfig"]),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(
            some.sampled_from(["type", *KEYS]) | some.text(max_size=6), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@often
@given(some.sampled_from(KEYS), JSON, some.booleans())
@example("mesh", {"type": []}, False)
@example("mesh", {"type": "AdamW"}, False)
@example("optimizer.learning_rate", math.nan, False)
def test_any_value_in_a_saved_configuration_is_read_or_refused(key, value, whole):
    tree = json.loads(to_json(TINY))
    node, names = tree, key.split(".")
    for name in names[:-1]:
        node = node[name]
    node[names[-1]] = value
    try:
        run = from_json(json.dumps(value if whole else tree), where="runs/config.json")
    except ConfigError as error:
        message = str(error)
    else:
        assert isinstance(run, Run) and is_sound(run)
        return
    assert len(message.splitlines()) == 1 and "runs/config.json" in message
    assert whole or names[-1] in message or names[0] in message, message


@often
@given(some.binary(max_size=60) | some.text(max_size=30).map(str.encode))
def test_any_bytes_as_a_saved_configuration_are_one_line(tmp_path_factory, raw):
    path = tmp_path_factory.getbasetemp() / "words.json"
    path.write_bytes(raw)
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    assert len(str(caught.value).splitlines()) == 1 and "words.json" in str(caught.value)


LINES = some.one_of(
    some.binary(max_size=30),
    some.sampled_from(
        [
            b"",
            b" ",
            b"\t",
            b"a\tb",
            b"a\tb\tc",
            b"\r",
            b"\xff\xfe",
            b"\xef\xbb\xbf",
            b'{"text": "a"}',
            b'{"text": 1}',
            b'{"text": "\\ud800"}',
            b"[" * 3000,
        ]
    ),
    JSON.map(lambda value: json.dumps({"text": value, "other": "b"}).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
)
FILES = some.lists(LINES, max_size=8).map(b"\n".join)
FIELDS = {"jsonl": "text", "pair_jsonl": "text,other"}


def read_documents(path, form, *part):
    return list(read_file(str(path), form, *part, FIELDS.get(form, "text")))


@often
@given(
    raw=FILES,
    form=some.sampled_from(sorted(FORMAT_READERS)),
    packed=some.sampled_from(["", "gz", "cut", "torn"]),
    at=some.integers(0, 200),
)
@example(raw=b"\xef\xbb\xbf\n\x00", form="block", packed="", at=0)  # cut within the byte order mark
def test_any_bytes_are_documents_or_an_error_that_names_the_file(
    tmp_path_factory, raw, form, packed, at
):
    path = tmp_path_factory.getbasetemp() / ("corpus.gz" if packed else "corpus")
    if packed:
        whole = gzip.compress(raw, mtime=0)
        raw = {
            "gz": whole,
            "cut": whole[: at % len(whole)],
            "torn": whole[: at % len(whole)] + b"\x00" + whole[at % len(whole) + 1 :],
        }[packed]
    path.write_bytes(raw)
    refused = None
    try:
        found = read_documents(path, form, 0, None)
    except ValueError as error:
        refused = error
    if refused:
        assert str(path) in str(refused) and type(refused) is ValueError
        return
    for record in found:
        record.raw.decode()
        assert 1 <= record.line <= raw.count(b"\n") + 1 or packed
    if not packed and form != "file" and len(raw) > 2:  # the result is the same in three parts
        cuts = [0, *sorted({at % (len(raw) - 1) + 1, (at // 7 * 3) % (len(raw) - 1) + 1}), None]
        parts = [
            record
            for lo, hi in itertools.pairwise(cuts)
            for record in read_documents(path, form, lo, hi)
        ]
        assert [(record.raw, record.repair) for record in parts] == [
            (record.raw, record.repair) for record in found
        ]
