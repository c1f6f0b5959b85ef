"""Labelled rows whose [CLS] is last are those whose [CLS] is first, moved token by token."""

import dataclasses

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
    """Return {key: the list of a row whose [CLS] is moved behind its other tokens}."""
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
