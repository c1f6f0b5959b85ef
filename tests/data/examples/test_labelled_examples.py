"""Labelled texts in three formats are the same examples, errors name the file and line, and rows
are truncated as configured.
"""

import gzip
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from data.config import Data
from data.examples import labelled_examples, labelled_store
from data.examples.labelled_examples import Columns, Example, parse_class, parse_score
from data.examples.tables import read_table
from data.inspection.batch_report import inspect_batches
from data.objectives import (
    AnswerSpan,
    Classification,
    MaskedLm,
    MultipleChoice,
    Regression,
    Tagging,
)
from data.pipeline import Stream
from data.rows.labelled_rows import truncate_lengths
from data.store.reader import Store
from tests.store_files import generation_folder

PAIR, ONE = Columns(("text", "text2"), "label"), Columns(("text",), "label")
BROKEN = gzip.compress(b"", mtime=0)[:10] + b"\xff" * 20  # of an unknown kind of block
ROWS = [
    ('"No", he said, "no".', "A\tb\nc", "yes"),
    ("An, other", " second ", "no"),
    ("third", "Ünïcode", "yes"),
]


def write_file(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def quote_field(text):
    return '"' + text.replace('"', '""') + '"'


def test_a_mark_before_quoted_names_is_no_part_of_them(tmp_path):
    """As pandas writes them, with `encoding="utf-8-sig", quoting=csv.QUOTE_ALL`."""
    path = write_file(tmp_path / "a.csv", '\ufeff"text","label"\n"a, b","1"\n')
    (found,) = labelled_examples.read_examples(str(path), ONE, parse_class)
    assert found.texts == ("a, b",) and found.label == "1"


def test_a_share_takes_half_of_a_character():
    examples = [Example((f"\ud83d {i}",), "a", "here") for i in range(40)]
    train, heldout = labelled_store.split_examples(examples, 0.5)
    assert len(train) + len(heldout) == 40


def test_three_forms_are_the_same_examples(tmp_path):
    jsonl = (
        "\ufeff"
        + "\n\n".join(
            json.dumps({"text": a, "more": 3, "text2": b, "label": c}) for a, b, c in ROWS
        )
        + "\n"
    )
    commas = "label,text,text2\r\n" + "".join(
        f"{c},{quote_field(a)},{quote_field(b)}\r\n" for a, b, c in ROWS
    )
    tabs = "\ufefftext\ttext2\tlabel\n" + "".join(
        f"{a}\t{b.replace(chr(9), ' ').replace(chr(10), ' ')}\t{c}\n" for a, b, c in ROWS
    )
    expected = [
        (('"No", he said, "no".', "A b c"), "yes"),
        (("An, other", "second"), "no"),
        (("third", "Ünïcode"), "yes"),
    ]
    places = {"a.jsonl": (1, 3, 5), "a.csv": (2, 4, 5), "a.tsv": (2, 3, 4), "a.tsv.gz": (2, 3, 4)}
    for name, text in (("a.jsonl", jsonl), ("a.csv", commas), ("a.tsv", tabs), ("a.tsv.gz", tabs)):
        path = write_file(tmp_path / name, text)
        read = labelled_examples.read_examples(path, PAIR, parse_class)
        assert [example[:2] for example in read] == expected
        assert [example.location for example in read] == [f"{path}:{line}" for line in places[name]]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n',
         r"a.jsonl:2: no column 'label'; there are 'text'. --columns names the texts and the " "label for `finetune`; `evaluate` reads the columns of the run"),
        ("a.jsonl", '{"text": "a", "label": 1}\nnot\n',
         r"a.jsonl:2: not JSON \(Expecting value, at character 1\); each line holds one whole object"),
        ("a.jsonl", '{"text": "a\n', r"a.jsonl:1: not JSON \(Unterminated string starting at, at character 10\)"),
        ("a.jsonl", "[" * 100_000, r"a.jsonl:1: not JSON \(maximum recursion depth"),
        ("a.jsonl", '{"text": "a", "label": ' + "1" * 5000 + "}\n", r"a.jsonl:1: not JSON \(Exceeds the limit"),
        ("a.jsonl", "[1]\n", r"a.jsonl:1: expected a JSON object, not '\[1\]"),
        ("a.jsonl", '{"text": "  ", "label": 1}\n', r"a.jsonl:1: column 'text' is empty"),
        ("a.jsonl", '{"text": 3, "label": 1}\n', r"a.jsonl:1: column 'text' is int, not a text"),
        ("a.jsonl", '{"text": "a", "label": 0.5}\n', r"a.jsonl:1: column 'label': 0.5 is not the name of a class"),
        ("a.jsonl", '{"text": "a", "label": true}\n', r"a.jsonl:1: column 'label': True is not the name of a class"),
        ("a.jsonl", "\n \n", "a.jsonl: no examples in it"),
        ("a.tsv", "", "a.tsv: no examples in it"),
        ("a.tsv", "text\tlabel\n", "a.tsv: no examples in it"),
        ("a.tsv", "text\tlabel\na\tb\nc\n", r"a.tsv:3: 1 columns, the first line names 2 \(text, label\)"),
        ("a.tsv", "text\ttext\na\tb\n", "a.tsv:1: the line of names has one twice"),
        ("a.tsv", "sentence\tlabel\na\tb\n", r"a.tsv:2: no column 'text'; there are 'sentence', 'label'"),
        ("a.csv", 'text,label\n"a" b,c\n', r"a.csv:2: "),
        ("a.csv", 'text,label\n"a', r"a.csv:2: .*; in a .csv a column that holds quotes is itself in quotes"),
        ("a.csv.gz", b"text,label\n", "a.csv.gz: the gzip file is broken or cut off"),
        ("a.csv.gz", gzip.compress(b"text,label\n", mtime=0)[:-9], "a.csv.gz: the gzip file is broken or cut off"),
        ("a.csv.gz", BROKEN, "a.csv.gz: the gzip file is broken or cut off .*invalid"),
        ("a.jsonl", b'{"text": "a", "label": 1}\n{"text": "\xe9", "label": 1}\n',
         "a.jsonl:2: not UTF-8 .*; `iconv -f ENCODING -t UTF-8` converts"),
        ("a.txt", "a\n", "ends in .jsonl, .tsv, .csv, or one of these and .gz"),
    ],
)  # fmt: skip
def test_errors_are_reported_with_its_place(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text) if isinstance(text, bytes) else write_file(path, text)
    with pytest.raises(ValueError, match=message):
        labelled_examples.read_examples(str(path), ONE, parse_class)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="x.tsv: no such file"):
        labelled_examples.read_examples(str(tmp_path / "x.tsv"), ONE, parse_class)


def make_examples(*labels):
    return [Example((f"text {i}",), label, f"here:{i + 1}") for i, label in enumerate(labels)]


def test_classes_are_put_in_order_and_unknown_ones_refused():
    assert labelled_examples.list_classes(make_examples("10", "9", "-1", "9")) == ("-1", "9", "10")
    assert labelled_examples.list_classes(make_examples("b", "9", "a")) == ("9", "a", "b")
    with pytest.raises(ValueError, match="here: all 3 examples have the label 'a'"):
        labelled_examples.check_label_variety(make_examples("a", "a", "a"))
    np.testing.assert_array_equal(
        labelled_examples.encode_labels(make_examples("b", "a", "b"), ("a", "b")),
        np.float32([1, 0, 1]),
    )
    with pytest.raises(ValueError, match="here:2: the label 'c' is not one of 'a', 'b'"):
        labelled_examples.encode_labels(make_examples("b", "c"), ("a", "b"))
    np.testing.assert_array_equal(
        labelled_examples.encode_labels(make_examples(2.5, 0.0), ()), np.float32([2.5, 0])
    )


def test_scores_are_finite_numbers():
    assert [parse_score(value) for value in (3, 2.5, "4.25", " 1 ")] == [3.0, 2.5, 4.25, 1.0]
    for value in ("a", "nan", float("inf"), True, None, "", 10**400):
        with pytest.raises(ValueError, match="is not a score"):
            parse_score(value)
    assert parse_score(-3.4e38) == -3.4e38
    with pytest.raises(ValueError, match=r"the score 1e\+39 is beyond float32"):
        parse_score(1e39)


def test_a_share_is_held_out_by_the_texts_alone():
    many = [Example((f"text {i % 150}",), str(i % 2), f"here:{i}") for i in range(300)]
    train, held = labelled_store.split_examples(many, 0.2)
    assert 20 < len(held) < 100 and len(train) + len(held) == 300
    assert not {example.texts for example in train} & {example.texts for example in held}
    assert labelled_store.split_examples(many[:150], 0.2)[1] == [
        example for example in held if int(example.location[5:]) < 150
    ]
    with pytest.raises(
        ValueError, match="1 to train on and 0 held out|0 to train on and 1 held out"
    ):
        labelled_store.split_examples(many[:1], 0.2)


@pytest.mark.parametrize("width", [7, 8])
def test_pairs_are_cut_as_the_tokenizers_library_cuts_them(width):
    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.enable_truncation(width, strategy="longest_first")
    sizes = [(a, b) for a in range(1, 13) for b in range(1, 13)]
    expected = [
        (encoding.sequence_ids.count(0), encoding.sequence_ids.count(1))
        for encoding in (words.encode("a " * a, "a " * b) for a, b in sizes)
    ]
    assert (
        list(zip(*(side.tolist() for side in truncate_lengths(*np.array(sizes).T, width))))
        == expected
    )


def test_only_the_ratios_of_class_weights_matter(labelled_store):
    """A step divides by the sum of a batch's weights, but not by less than 1."""
    large, small = (
        Stream(
            labelled_store,
            Data(objective=Classification(length=24, class_weights=weights), batch_size=10),
        ).build_batch(0)["label_weights"]
        for weights in ((1.0, 3.0), (0.001, 0.003))
    )
    np.testing.assert_allclose(small, large, rtol=1e-6)
    assert set(large.tolist()) == {1.0, 3.0}


def test_rows_hold_each_example_once_with_its_label(labelled_store, vocabulary):
    stream = Stream(
        labelled_store,
        Data(objective=Classification(length=24, class_weights=(1.0, 3.0)), batch_size=10),
        seed=1,
    )
    split, seen = labelled_store.open_split("train"), []
    edges = split.sentence_starts.tolist()
    texts = [split.tokens[a:b].tolist() for a, b in itertools.pairwise(edges)]
    for step in range(4):
        batch = stream.build_batch(step)
        for i, (row, _) in enumerate(zip(*stream.draw_keys(step * 10 + np.arange(10)))):
            a, b = texts[2 * row], texts[2 * row + 1]
            length_a, length_b = (int(n) for n in truncate_lengths(len(a), len(b), 21))
            ids = [vocabulary.cls, *a[:length_a], vocabulary.sep, *b[:length_b], vocabulary.sep]
            assert batch["token_ids"][i].tolist() == ids + [vocabulary.pad] * (24 - len(ids))
            assert batch["attention_mask"][i].sum() == len(ids) and batch["token_type_ids"][
                i
            ].tolist() == [int(length_a + 2 <= n < len(ids)) for n in range(24)]
            assert (
                batch["labels"][i] == row % 2
                and batch["label_weights"][i] == (1.0, 3.0)[row % 2]
                and batch["row_weights"][i] == 1
            )
            seen.append(int(row))
    assert sorted(seen) == list(range(40)) and stream.num_rows == 40
    assert (
        stream.table.num_truncated
        == sum(len(a) + len(b) > 21 for a, b in zip(texts[::2], texts[1::2]))
        > 0
    )
    scores = Stream(
        labelled_store, Data(objective=Regression(length=24, separators=2), batch_size=10), seed=1
    ).build_batch(0)
    assert scores["labels"].tolist() == stream.build_batch(0)["labels"].tolist()
    assert ((scores["token_ids"] == vocabulary.sep).sum(axis=1) == 3).all()


def test_a_text_alone_is_a_row(tmp_path, vocabulary, texts):
    one = [Example((text,), score, "here") for text, score in zip(texts, (0.5, 2.0, 3.5))]
    store = labelled_store.write_labelled(tmp_path / "store", vocabulary, {"train": one}, ())
    stream = Stream(store, Data(objective=Regression(length=8), batch_size=3))
    assert (
        stream.table.num_truncated
        == sum(len(vocabulary.encode(text)) > 6 for text in texts[:3])
        > 0
    )
    batch = stream.build_evaluation_batch(0)
    for i, text in enumerate(texts[:3]):
        ids = [vocabulary.cls, *vocabulary.encode(text)[:6], vocabulary.sep]
        assert batch["token_ids"][i].tolist() == ids + [vocabulary.pad] * (8 - len(ids))
    assert not batch["token_type_ids"].any() and batch["labels"].tolist() == [0.5, 2.0, 3.5]
    with pytest.raises(ValueError, match="heldout split of .* is empty"):
        Stream(store, Data(objective=Regression()), split="heldout")


def test_unreadable_settings_are_refused(labelled_store, store, vocabulary):
    with pytest.raises(ValueError, match="its documents have no labels; `finetune` makes a store"):
        Stream(store, Data(objective=Classification()))
    with pytest.raises(ValueError, match="length=5; a row holds"):
        Stream(labelled_store, Data(objective=Classification(length=5)))
    with pytest.raises(ValueError, match="separators=0"):
        Stream(labelled_store, Data(objective=Regression(separators=0)))
    with pytest.raises(ValueError, match="class_weights=.*above 0"):
        Stream(labelled_store, Data(objective=Classification(class_weights=(1.0, -1.0))))
    Stream(
        labelled_store, Data(objective=MaskedLm(length=16, max_predictions=3, rows="documents"))
    ).build_batch(0)  # masked LM reads the texts of the pairs


@pytest.mark.parametrize(
    "objective", [Classification(), Regression(), MultipleChoice(), Tagging(), AnswerSpan()]
)
def test_rows_need_their_special_tokens(objective, vocabulary):
    objective.check_vocabulary(vocabulary)
    for lacking in ("cls", "sep", "pad"):
        there = {"cls": 2, "sep": 3, "pad": 0} | {lacking: None}
        with pytest.raises(
            ValueError, match=f"{objective.name} needs the special token.s. {lacking}, which"
        ):
            objective.check_vocabulary(SimpleNamespace(**there, kind="bpe", size=9))


def test_a_damaged_label_is_noticed_and_names_belong_to_the_store(tmp_path, vocabulary, texts):
    def write_labels(names):
        one = [Example((text,), label, "here") for text, label in zip(texts, names * 2)]
        return labelled_store.write_labelled(
            tmp_path / names, vocabulary, {"train": one}, tuple(names)
        )

    stores = write_labels("ab"), write_labels("xy")
    assert (
        stores[0].manifest["labels"] == ["a", "b"]
        and stores[0].fingerprint != stores[1].fingerprint
    )
    path = generation_folder(tmp_path / "ab") / "train" / "labels.bin"
    raw = bytearray(path.read_bytes())
    raw[2] ^= 1
    path.write_bytes(raw)
    for how, message in (("refuse", "labels.bin: crc32c"), ("skip", "has to be complete")):
        with pytest.raises(ValueError, match=message):
            Store.open(tmp_path / "ab").verify_or_salvage(how)


def test_empty_columns_at_the_end_of_lines_are_nothing(tmp_path):
    """Excel writes as many columns as the longest line of a sheet ever had."""
    path = tmp_path / "a.csv"
    path.write_text("text,label,,\nwalks,no,,\nruns,yes\nsits,,,\n")
    with path.open(newline="") as file:
        rows = [record for _, record in read_table(file, "a.csv", ".csv")]
    assert rows == [
        {"text": text, "label": label}
        for text, label in (("walks", "no"), ("runs", "yes"), ("sits", ""))
    ]
    path.write_text("text,label,,\nwalks,no,x,\n")
    with path.open(newline="") as file, pytest.raises(ValueError, match="a.csv:2: 3 columns"):
        list(read_table(file, "a.csv", ".csv"))


def test_inspection_shows_the_labels(labelled_store):
    for objective in (Classification(length=24, cls_position="last"), Regression(length=24)):
        stream = Stream(labelled_store, Data(objective=objective, batch_size=8), seed=1)
        report = inspect_batches(stream, batches=4, rows=2)
        kind = "class" if isinstance(objective, Classification) else "score"
        assert report["passed"] and len(report["rows"]) == 2
        assert all(row["label"] == f"{kind} {row['row'] % 2}" for row in report["rows"])
        assert all({0, 1} <= {*row["segments"]} for row in report["rows"])
