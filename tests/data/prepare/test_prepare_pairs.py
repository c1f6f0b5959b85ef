"""Pairs of texts: two columns or fields become a document of two sentences; anything else is an
error.
"""

import itertools
import json

import numpy as np
import pytest

from data.corpus import sources
from data.corpus.sentences import find_pair_spans
from data.prepare import batches, jobs
from data.prepare.build import PrepareRequest, prepare_store
from data.store.reader import Store

PAIRS = [
    ("A dog. It barks!", "Ein Hund. Er bellt!"),
    ("two\nlines", "zwei\r\nZeilen"),
    ("  blank \t", "leer\0"),
    ("Dr. Who\n\nsays no", "x"),
    ("数学。", "é"),
]
CLEAN = [
    PAIRS[0],
    ("two lines", "zwei\r Zeilen"),
    ("blank", "leer"),
    ("Dr. Who  says no", "x"),
    PAIRS[4],
]


def read_pairs(path, size=1 << 20, field="source,target"):
    found = sources.resolve_source(str(path), "pair", field)
    return [
        record.raw.decode()
        for piece in sources.split_source(found, size, None)
        for record in sources.read_chunk(piece)
    ]


def format_json_lines(pairs, names=("source", "target")):
    return "".join(json.dumps(dict(zip(names, pair))) + "\n" for pair in pairs)


@pytest.mark.parametrize("size", [16, 1 << 20])
def test_json_and_columns(tmp_path, size):
    """A side is one line, without surrounding blanks."""
    (tmp_path / "a.jsonl").write_text(format_json_lines(PAIRS))
    assert read_pairs(tmp_path / "a.jsonl", size) == ["\n".join(pair) for pair in CLEAN]
    (tmp_path / "b.jsonl").write_text(format_json_lines(PAIRS, ("en", "de")))
    assert read_pairs(tmp_path / "b.jsonl", size, "de,en") == [
        "\n".join(pair[::-1]) for pair in CLEAN
    ]
    columns = [pair for pair in CLEAN if "\r" not in pair[1]]
    (tmp_path / "c.tsv").write_text(
        "\ufeff" + "".join("\t".join(pair) + "\r\n" for pair in columns) + "\n"
    )
    assert read_pairs(tmp_path / "c.tsv", size) == ["\n".join(pair) for pair in columns]


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("a.tsv", "one\ttwo\tthree\n", "2 tabs; a pair is a source and its target, with one tab between them"),
        ("a.tsv", "one two\n", "0 tabs; a pair is"),
        ("a.tsv", "one\t\n", "the target is empty"),
        ("a.tsv", " \ttwo\n", "the source is empty"),
        ("a.tsv", "\t\n", "the source is empty"),
        ("a.jsonl", '{"source": "one"}\n',
         "no field 'target' in the record, which is an object with 'source'; --field"),
        ("a.jsonl", '{"source": "one", "target": null}\n', "field 'target' is NoneType, not a text"),
        ("a.jsonl", '{"source": "one", "target": "\\u0000 "}\n', "the target is empty"),
    ],
)  # fmt: skip
def test_a_line_without_a_pair_is_an_error_that_names_file_and_line(tmp_path, name, line, message):
    good = "one\ttwo\n" if name == "a.tsv" else format_json_lines([("one", "two")])
    (tmp_path / name).write_text(good * 3 + line + good)
    for size in (16, 1 << 20):
        with pytest.raises(ValueError, match=rf"{name}, line 4: {message}"):
            read_pairs(tmp_path / name, size)


def test_sources_without_pairs(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    for name, message in (
        (tmp_path / "a.txt", r"a source ends in \.tsv, \.jsonl"),
        ("builtin", "builtin has no pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            sources.resolve_source(str(name), "pair")
    (tmp_path / "a.tsv").write_text("a\tb\n")
    with pytest.raises(ValueError, match="a.tsv: a source ends in .txt"):
        sources.resolve_source(str(tmp_path / "a.tsv"))
    for field in ("text", "a,a", "a,b,c"):
        with pytest.raises(ValueError, match=f"--field {field}: pairs have two fields"):
            PrepareRequest(("a.tsv",), document="pair", field=field).check()


@pytest.mark.parametrize("layout", ["transformer", "roberta"])
def test_a_store_of_pairs(tmp_path, texts, layout, monkeypatch):
    """Each pair is a document of two sentences, encoded separately; a pair with an empty side is
    skipped and counted.
    """
    monkeypatch.setattr(jobs, "BATCH_BYTES", 700)  # several batches
    pairs = [(f"{a} {a}", b) for a, b in zip(texts[:40], texts[40:80])]
    (tmp_path / "a.jsonl").write_text(
        format_json_lines([*pairs[:20], ("\u200b", "a zero-width space"), *pairs[20:]])
    )
    words = {"layout": layout} | (
        {"algorithm": "byte_bpe", "vocab_size": 300}
        if layout == "roberta"
        else {"algorithm": "bpe", "vocab_size": 96}
    )
    request = PrepareRequest(
        (str(tmp_path / "a.jsonl"),), document="pair", field="source,target", held_out=0.2, **words
    )
    prepare_store(request, tmp_path / "store", job_bytes=900)
    store, found = Store.open(tmp_path / "store"), []
    for name in ("train", "heldout"):
        split = store.open_split(name)
        np.testing.assert_array_equal(split.sentence_starts[::2], split.document_starts)
        edges = split.sentence_starts.tolist()
        sides = [store.vocabulary.decode(split.tokens[a:b]) for a, b in itertools.pairwise(edges)]
        found += zip(sides[::2], sides[1::2])
    silent = layout == "transformer"  # bytes always have tokens
    assert sorted(found) == sorted(pairs if silent else [*pairs, ("\u200b", "a zero-width space")])
    noted = store.manifest["noted"].get(batches.TOKENLESS_PAIRS, {})
    assert noted == ({"count": 1, "first": f"{tmp_path}/a.jsonl, 21"} if silent else {})
    first = store.open_split("train").tokens[: store.open_split("train").sentence_starts[2]]
    source, target = next((a, b) for a, b in pairs if a == found[0][0])
    assert first.tolist() == store.vocabulary.encode(source) + store.vocabulary.encode(target)


def test_a_side_is_not_cut():
    text = b"a. B\nc! D\n\ne\nf"
    starts, ends, made = find_pair_spans(text, np.array([0, 11]))
    assert [text[a:b] for a, b in zip(starts, ends)] == [b"a. B", b"c! D", b"e", b"f"] and len(
        made
    ) == 0
