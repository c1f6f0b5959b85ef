"""Frames of labelled rows against those with the [CLS] first, token by token."""

import copy
import dataclasses
from types import SimpleNamespace

import pytest

from data.config import Data
from data.objectives import AnswerSpan, Classification, MultipleChoice, Regression, Tagging
from data.pipeline import Stream
from tests.data.test_pinned_batches import corpora  # noqa: F401

OBJECTIVES = {
    "labels": Classification(length=20),
    "labelled pairs": Classification(length=40, separators=2),
    "scores": Regression(length=36),
    "tags": Tagging(length=60),
    "choices": MultipleChoice(length=32),
    "questions": AnswerSpan(length=32, stride=8, question=7),
}
BY_TOKEN = ("token_ids", "token_type_ids", "labels", "label_weights", "word_weights")


def move_slowly(row, length):
    """Return {key: the list of a row whose [CLS] is moved after its other tokens}."""
    count = sum(row["attention_mask"])
    moved = dict(row)
    for key in BY_TOKEN:
        if isinstance(row.get(key), list):
            moved[key] = [*row[key][1:count], row[key][0], *row[key][count:]]
    moved["token_type_ids"] = moved.get("token_type_ids", [0] * length)
    moved["token_type_ids"][count - 1] = 2
    for key in ("start_positions", "end_positions", "context_starts"):
        if key in row:
            moved[key] = row[key] - 1 if row[key] else count - 1
    return moved


@pytest.mark.parametrize("corpus", OBJECTIVES)
def test_the_cls_is_moved_alone(corpora, corpus):  # noqa: F811
    objective = OBJECTIVES[corpus]
    last = dataclasses.replace(objective, cls_position="last")
    batches = [
        Stream(corpora[corpus], Data(objective=each, batch_size=40), seed=1).build_batch(3)
        for each in (objective, last)
    ]
    L = objective.length
    if corpus == "choices":  # each choice is a row
        batches = [
            {key: array.reshape(-1, L) for key, array in batch.items() if array.ndim == 3}
            for batch in batches
        ]
    first, found = batches
    lengths = first["attention_mask"].sum(axis=1)
    assert lengths.min() < L, "a row with padding"
    assert found.keys() == first.keys() | {"token_type_ids"}
    for i in range(len(lengths)):
        row = {key: array[i].tolist() for key, array in first.items()}
        assert {key: array[i].tolist() for key, array in found.items()} == move_slowly(row, L), i
    assert {key: found[key].dtype for key in first} == {key: first[key].dtype for key in first}
    if corpus == "questions":
        assert 0 < (first["start_positions"] == 0).sum() < len(lengths)


@pytest.mark.parametrize("corpus", ["labels", "labelled pairs", "scores", "choices"])
def test_a_decoders_rows_are_the_texts_alone(corpora, corpus):  # noqa: F811
    """Two texts have the end of text between them. Rows without a [CLS] have room for more."""
    objective = dataclasses.replace(OBJECTIVES[corpus], separators=1)
    around = dataclasses.replace(objective, length=objective.length + 2)
    alone = dataclasses.replace(objective, cls_position="none")
    framed, found = (
        Stream(corpora[corpus], Data(objective=each, batch_size=40), seed=1).build_batch(3)
        for each in (around, alone)
    )
    vocabulary = corpora[corpus].vocabulary
    rows = framed["token_ids"].reshape(-1, around.length)
    lengths = framed["attention_mask"].reshape(rows.shape).sum(axis=1)
    assert lengths.min() < around.length
    for i, length in enumerate(lengths):
        texts = [vocabulary.eos if t == vocabulary.sep else t for t in rows[i, 1 : length - 1]]
        padding = [vocabulary.pad] * (objective.length - len(texts))
        assert found["token_ids"].reshape(-1, objective.length)[i].tolist() == texts + padding, i
        mask = found["attention_mask"].reshape(-1, objective.length)[i]
        assert mask.sum() == len(texts) and mask[: len(texts)].all()


@pytest.mark.parametrize("corpus", ["labelled pairs", "choices"])
def test_a_pair_needs_a_token_between_its_texts(corpora, corpus):  # noqa: F811
    without = copy.copy(corpora[corpus])
    without.vocabulary = SimpleNamespace(**vars(without.vocabulary) | {"eos": None})
    objective = dataclasses.replace(OBJECTIVES[corpus], separators=1, cls_position="none")
    with pytest.raises(ValueError, match="a pair of texts needs a token between them, and this"):
        Stream(without, Data(objective=objective, batch_size=4))
