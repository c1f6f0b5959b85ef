"""Texts to embed are read in each form, and each text of an example is a row of its own."""

import json

import numpy as np
import pytest

from data.config import Data
from data.examples.example_store import ExampleStore
from data.examples.labelled_store import write_labelled
from data.examples.text_sets import has_scores, has_vectors, read_text_sets
from data.objectives.contrastive import Contrastive
from data.objectives.similarity import Similarity
from data.objectives.teacher_vectors import TeacherVectors
from data.pipeline import Stream
from data.vocabulary.load import train_vocabulary
from pretrain.convert import tokenizer

TEXT = [
    "The fox and the dog. A word and another word, and so on.",
    "Gaps are left out of a text, and the reader fills them.",
    "No.",
]


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.mark.parametrize(
    ("record", "columns", "texts", "label"),
    [
        ({"query": "a", "positive": "b"}, ("query", "positive"), ("a", "b"), 0),
        ({"anchor": "a", "positive": "b", "x": 1}, ("anchor", "positive"), ("a", "b"), 0),
        ({"query": "a", "positive": "b", "negative_10": "d", "negative_2": "c"},
         ("query", "positive", "negative_2", "negative_10"), ("a", "b", "c", "d"), 0),
        ({"query": "a", "positive": "b", "negatives": ["c", "d"]},
         ("query", "positive", "negatives"), ("a", "b", "c", "d"), 0),
        ({"sentence1": "a", "sentence2": "b", "score": "2.5"},
         ("sentence1", "sentence2", "score"), ("a", "b"), 2.5),
        ({"text": "a", "text2": "b", "label": 1}, ("text", "text2", "label"), ("a", "b"), 1),
        ({"text": " a "}, ("text",), ("a",), 0),
        ({"text": "a", "vector": [1, "-2.5"]}, ("text", "vector"), ("a",), (1, -2.5)),
        ({"embedding": [0.5], "text": "a"}, ("text", "embedding"), ("a",), (0.5,)),
    ],
)  # fmt: skip
def test_forms_of_an_example(record, columns, texts, label, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [record])
    (example,), found = read_text_sets(path)
    assert (found, example.texts, example.label) == (columns, texts, label)
    assert example.location == f"{path}:1"
    assert has_scores(columns) == (isinstance(label, float | int) and label > 0)
    assert has_vectors(columns) == isinstance(label, tuple)


@pytest.mark.parametrize(
    ("records", "columns", "message"),
    [
        ([{"question": "a"}], (), "a.jsonl:1: has the columns 'question'; expected query,positive"),
        ([{"query": "a", "positive": ""}], (), "a.jsonl:1: column 'positive' is empty"),
        ([{"query": "a", "positive": 3}], (), "a.jsonl:1: column 'positive' is int, not a text"),
        ([{"query": "a", "positive": "b", "negatives": "c"}], (), "'negatives' is str, not a list"),
        ([{"query": "a", "positive": "b"}, {"query": "a"}], (), "a.jsonl:2: no column 'positive'"),
        ([{"text": "a", "vector": 1}], (), "a.jsonl:1: column 'vector': 1 is not a vector"),
        ([{"text": "a", "vector": []}], (), r"column 'vector': \[\] is not a vector"),
        ([{"text": "a", "vector": [1, None]}], (), "column 'vector': None is not a score"),
        ([{"text": "a", "vector": [1]}, {"text": "b", "vector": [1, 2]}], (),
         "a.jsonl:2: a vector of 2 components; the first has 1"),
        ([{"query": "a", "positive": "b", "negatives": ["c"]},
          {"query": "a", "positive": "b", "negatives": []}], (), "a.jsonl:2: 2 texts; 3 are expected"),
        ([{"text": "a", "text2": "b", "score": "x"}], (), "a.jsonl:1: column 'score': 'x' is not a"),
        ([{"a": "b"}], ("a", "c"), "a.jsonl:1: no column 'c'; there are 'a'"),
        ([], (), "no examples in it"),
    ],
)  # fmt: skip
def test_a_bad_example_is_named(records, columns, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read_text_sets(write_lines(tmp_path / "a.jsonl", records), columns)


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(TEXT * 20, 72, algorithm="bpe")


def build_batch(tmp_path, vocabulary, records, objective, size):
    examples, _ = read_text_sets(write_lines(tmp_path / "a.jsonl", records))
    store = write_labelled(tmp_path / "store", vocabulary, {"train": examples}, ())
    data = Data(objective=objective, batch_size=size)
    return Stream(store, data).build_batch(0)


def test_each_text_is_the_row_of_its_tokenizer(tmp_path, vocabulary):
    records = [{"query": a, "positive": b, "negative": c} for a, b, c in (TEXT, TEXT[::-1])]
    batch = build_batch(tmp_path, vocabulary, records, Contrastive(length=12, texts=3), 2)
    made = tokenizer.build_tokenizer(vocabulary, "bert", is_labelled=True)
    made.enable_truncation(12)
    order = 0 if batch["attention_mask"][0, 2].sum() < 12 else 1  # the shuffled order
    for row, texts in zip((order, 1 - order), (TEXT, TEXT[::-1])):
        for t, text in enumerate(texts):
            ids = made.encode(text).ids
            mask_L = batch["attention_mask"][row, t]
            assert batch["token_ids"][row, t, mask_L].tolist() == ids
    assert (batch["label_weights"] == 1).all() and not batch["token_type_ids"].any()


def test_a_single_text_is_its_own_positive(tmp_path, vocabulary):
    batch = build_batch(
        tmp_path, vocabulary, [{"text": text} for text in TEXT], Contrastive(length=12), 3
    )
    np.testing.assert_array_equal(batch["token_ids"][:, 0], batch["token_ids"][:, 1])
    assert len(np.unique(batch["token_ids"][:, 0], axis=0)) == 3


def test_spans_are_two_parts_of_a_text(tmp_path, vocabulary):
    """Of a tenth to a half of the tokens, other ones in each epoch, at all places."""
    text = " ".join(np.random.default_rng(0).permutation(" ".join(TEXT * 6).split()))
    ids = vocabulary.encode(text)
    objective = Contrastive(length=len(ids), spans=True)
    first = build_batch(tmp_path, vocabulary, [{"text": text}] * 64, objective, 64)
    lengths_BK = first["attention_mask"].sum(axis=2) - 2
    assert lengths_BK.min() >= 0.1 * len(ids) - 1 and lengths_BK.max() <= 0.5 * len(ids) + 1
    assert abs(lengths_BK.mean() / len(ids) - 0.3) < 0.05
    starts = set()
    for row, mask in zip(
        first["token_ids"].reshape(128, -1), first["attention_mask"].reshape(128, -1)
    ):
        span = row[mask][1:-1].tolist()
        starts |= {i for i in range(len(ids)) if ids[i : i + len(span)] == span}
    assert min(starts) < 0.1 * len(ids) and max(starts) > 0.6 * len(ids)
    assert len(np.unique(first["token_ids"][:, 0], axis=0)) > 32
    short = build_batch(tmp_path, vocabulary, [{"text": "No."}] * 2, objective, 2)
    assert (short["attention_mask"].sum(axis=2) >= 3).all()  # a token and the two around it
    pair = [{"query": "a word", "positive": "a text"}]
    with pytest.raises(ValueError, match="spans=true is for examples of a single text"):
        build_batch(tmp_path, vocabulary, pair, objective, 1)


def test_scores_stay_with_their_pairs(tmp_path, vocabulary):
    records = [
        {"text": text, "text2": text, "score": score} for text, score in zip(TEXT, (0.5, 4, 3))
    ]
    batch = build_batch(tmp_path, vocabulary, records, Similarity(length=12), 3)
    lengths = batch["attention_mask"][:, 0].sum(axis=1)
    assert batch["labels"][lengths.argmin()] == 3 and sorted(batch["labels"]) == [0.5, 3, 4]


def test_another_number_of_texts_is_refused(tmp_path, vocabulary):
    records = [{"query": "a word", "positive": "a text"}]
    with pytest.raises(ValueError, match=r"examples have 2 texts; data.objective.texts=3"):
        build_batch(tmp_path, vocabulary, records, Contrastive(length=12, texts=3), 1)


def test_a_row_comes_with_its_vector(tmp_path, vocabulary):
    records = [{"text": TEXT[i], "vector": [i, 2.0 * i, -1]} for i in range(3)]
    batch = build_batch(tmp_path, vocabulary, records, TeacherVectors(length=12, width=3), 3)
    rows = batch["teacher_vectors"][np.argsort(batch["teacher_vectors"][:, 0])]
    assert rows.dtype == np.float32 and rows.tolist() == [[0, 0, -1], [1, 2, -1], [2, 4, -1]]
    assert batch["token_ids"].shape == (3, 1, 12)
    with pytest.raises(ValueError, match="width=4; the vectors of the examples have 3 components"):
        build_batch(tmp_path, vocabulary, records, TeacherVectors(length=12, width=4), 3)


@pytest.mark.parametrize("width", [2, 0, "3", True, 1 << 17])
def test_a_manifest_of_another_width_is_refused(width, tmp_path, vocabulary):
    records = [{"text": text, "vector": [1, 2, 3]} for text in TEXT]
    build_batch(tmp_path, vocabulary, records, TeacherVectors(length=12, width=3), 3)
    path = next(tmp_path.rglob("manifest.json"))
    manifest = json.loads(path.read_text()) | {"label_width": width}
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="label_width is|labels.bin should have"):
        ExampleStore.open(path.parent)
