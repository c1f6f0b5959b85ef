"""Batches are bit-identical across versions, so that a newer version resumes a run with the same
rows.

The digests were taken before the code was reorganised. A change of the contents of batches ends every
run under way: report it in LOG.md and write the new digests here.

A digest covers names, types, shapes and bytes, in the order of the batch spec (data/batch_spec.py).
Keys that had another name when the digests were taken are hashed under that name, which HASHED
gives, so that no digest changes with a name.
"""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import (
    OBJECTIVES,
    AnswerSpan,
    CausalLm,
    Classification,
    Denoising,
    Distillation,
    MaskedLm,
    MaskedNextToken,
    MultipleChoice,
    PrefixLm,
    Regression,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    Seq2Seq,
    SpanCorruption,
    Tagging,
    Text2Text,
)
from data.objectives.text2text import ANSWERS_FILE
from data.pipeline import Stream
from data.store.reader import Store
from data.store.split import MixtureSource, Split

HASHED = {  # {key: its name in the digests, where that differs}
    "next_sentence_labels": "next_sentence",
    "next_sentence_weights": "next_weights",
    "sentence_order_labels": "order",
    "sentence_order_weights": "order_weights",
    "discriminator_weights": "token_weights",
    "start_positions": "starts",
    "end_positions": "ends",
    "question_ids": "questions",
    "context_starts": "contexts",
    "context_offsets": "skipped",
}
HASHED_OF = {"regression": {"labels": "scores"}}  # of one objective

PINNED = (  # (digest, corpus, objective)
    ("3d6784717aa0641f", "text", MaskedLm(length=32, max_predictions=6, rows="documents")),
    (
        "55c6942ea427ef7f",
        "text",
        MaskedLm(length=27, max_predictions=27, mask_rate=0.4, rows="documents"),
    ),
    ("8c20c02d38883d1e", "text", MaskedLm(length=32, max_predictions=6, rows="windows")),
    ("d3d927d5aa2b8fee", "text", MaskedLm(length=700, max_predictions=300, rows="windows")),
    ("ae48e3779f2cc0ff", "text", MaskedLm(length=32, max_predictions=6, rows="sentences")),
    ("4da668f57bcf7f40", "text", MaskedLm(length=64, max_predictions=10, rows="packed")),
    ("63fcd067bb7e1601", "text", MaskedLm(length=250, max_predictions=60, rows="packed")),
    (
        "0116b20e17ad3ff2",
        "text",
        MaskedLm(length=21, max_predictions=9, mask_rate=0.3, whole_words=True, rows="packed"),
    ),
    (
        "bdb48187ddbbd7ee",
        "text",
        MaskedLm(length=32, max_predictions=6, whole_words=True, dupe_factor=3, rows="documents"),
    ),
    ("d7f7e78493d89ac4", "text", SentencePair(length=32, max_predictions=6)),
    (
        "f893fccad6659684",
        "text",
        SentencePair(length=35, max_predictions=6, whole_words=True, short_seq_prob=0.5),
    ),
    ("9390d2f99e775b85", "text", SentenceOrder(length=48, max_predictions=9)),
    ("d398d3a95eaa3793", "text", ReplacedToken(length=32, max_predictions=6, rows="packed")),
    ("3c1bac095f37a039", "text", SpanCorruption(inputs=40)),
    ("6fb60e142b00cf54", "text", Denoising(length=48)),
    ("f75e154ed7c3a966", "text", MaskedNextToken(length=32, max_predictions=9, mask_rate=0.3)),
    ("c0cdb6b4e877dde5", "text", SpanCorruption(inputs=40, mode="700")),
    ("e935a028c5b10d56", "text", CausalLm(length=32)),
    ("b28ca407f76fad35", "text", PrefixLm(length=32)),
    ("3d6784717aa0641f", "text", Distillation(length=32, max_predictions=6, rows="documents")),
    ("4da668f57bcf7f40", "text", Distillation(length=64, max_predictions=10, rows="packed")),
    ("b6ff3fb8c1aeeee1", "pairs", Seq2Seq(length=64, target_length=48)),
    ("45795429d08890b1", "pairs", Text2Text(length=24, target_length=16)),
    ("122b91fe59b47b17", "pairs", Text2Text(length=40, target_length=30, start_of_text=True)),
    ("c6c8595f997483e5", "labels", Classification(length=20)),
    (
        "af1e69d9236e1965",
        "labelled pairs",
        Classification(length=40, separators=2, class_weights=(1.0, 0.5, 2.25)),
    ),
    ("f6fae1dd73439eec", "scores", Regression(length=36)),
    ("f87eb28add6253e8", "tags", Tagging(length=60, class_weights=(0.25, 1.0, 1.0, 1.0, 3.0))),
    ("bd17898efe6ea554", "choices", MultipleChoice(length=32)),
    ("3ced7af795b64b38", "questions", AnswerSpan(length=32, stride=8, question=7)),
    ("edf9c5947dba07cd", "questions", AnswerSpan(length=40, stride=4, question=10, separators=2)),
)


def arithmetic_split(sentences_D, sources, **more) -> Split:
    """Return a split of documents with the given numbers of sentences, whose lengths and ids are
    polynomials of their numbers.
    """
    numbers_S = np.arange(sum(sentences_D))
    tokens_S = 1 + (5 * numbers_S * numbers_S + 3 * numbers_S) % 29
    starts_S = np.concatenate([[0], np.cumsum(tokens_S)])
    starts_D = starts_S[np.concatenate([[0], np.cumsum(sentences_D)])]
    number = np.arange(starts_S[-1])
    ids = (number * number * 31 + number * 17 + number // 5) % 690 + 10
    ids[ids % 61 == 0] = 1
    return Split(ids.astype(np.uint16), starts_D, starts_S, sources, **more)


def question_split(folder) -> Split:
    """Return a split of 40 contexts with one to three questions each; every fourth question has no
    answer.
    """
    lengths, spans, sentences, at = [], [], [], 0
    for context in range(40):
        start, size = at, 5 + 7 * context * context % 90
        lengths.append(size)
        at += size
        sentences.append(2 + context % 3)
        for _ in range(1 + context % 3):
            number, length = len(spans), 1 + 5 * len(spans) % 11
            first = start + 13 * number % size
            answer = (
                (-1, -1) if number % 4 == 3 else (first, min(first + 1 + number % 5, start + size))
            )
            spans.append((at, at + length, start, start + size, *answer))
            lengths.append(length)
            at += length
    starts_S = np.concatenate([[0], np.cumsum(lengths)])
    starts_D = starts_S[np.concatenate([[0], np.cumsum(sentences)])]
    number = np.arange(at)
    np.array(spans, "<i8").tofile(folder / "spans.bin")
    for name in ("begins", "ends"):  # characters of the context, which no batch holds
        np.zeros(at, "<i4").tofile(folder / f"{name}.bin")
    ids = (number * number * 31 + number * 17) % 690 + 10
    return Split(
        ids.astype(np.uint16),
        starts_D,
        starts_S,
        (MixtureSource("one", (0, 40), 1.0),),
        folder=folder,
    )


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Return {name: what a Stream reads of a store}, computed by arithmetic alone; the tokens
    include unknown and special ids.
    """
    two = (MixtureSource("one", (0, 45), 0.7), MixtureSource("other", (45, 60), 0.3))
    classes, scores = np.arange(60) ** 2 % 7 % 3, np.arange(60) ** 2 % 11 / 4
    folder = tmp_path_factory.mktemp("pinned")
    (folder / ANSWERS_FILE).touch()
    splits = {
        "text": arithmetic_split(
            [(7 * d * d + 3 * d) % 11 for d in range(60)], two
        ),  # documents of 0 to 160 tokens
        "labels": arithmetic_split([1] * 60, two, labels=classes.astype(np.float32)),
        "labelled pairs": arithmetic_split([2] * 60, two, labels=classes.astype(np.float32)),
        "scores": arithmetic_split([2] * 60, two, labels=scores.astype(np.float32)),
        "tags": arithmetic_split(
            [1 + d % 9 for d in range(60)], two, tags=(np.arange(291) ** 2 % 7).astype(np.float32)
        ),
        "choices": arithmetic_split(
            [5] * 60, two, labels=(np.arange(60) ** 2 % 4).astype(np.float32)
        ),
        "pairs": arithmetic_split([2] * 60, two, folder=folder),
        "questions": question_split(folder),
    }
    special = np.arange(800) < 10
    special[700:] = True
    vocabulary = SimpleNamespace(
        kind="arithmetic", size=800, special=special, starts_word=(np.arange(800) % 3 != 0) | special, sentinels=tuple(range(799, 699, -1)),
        pieces=tuple(map(str, range(800))),
        **{role: i for i, role in enumerate(("pad", "unk", "cls", "sep", "mask", "bos", "eos"))},
    )  # fmt: skip
    return {name: GivenStore(vocabulary, split) for name, split in splits.items()}


class GivenStore(Store):
    """Return a store in memory whose splits are all the same."""

    def __init__(self, vocabulary, split):
        super().__init__("nowhere", {})
        self.vocabulary, self.only = vocabulary, split

    def open_split(self, name):
        return self.only


def hash_batches(made, spec, objective) -> str:
    """Hash batches in the order of the spec's keys: names as in HASHED, types, shapes and
    values.
    """
    found, names = hashlib.sha256(), HASHED | HASHED_OF.get(objective.name, {})
    for batch in made:
        assert batch.keys() == set(spec)
        for key in spec:
            found.update(f"{names.get(key, key)} {batch[key].dtype} {batch[key].shape} ".encode())
            found.update(np.ascontiguousarray(batch[key]).tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(
    ("pinned", "corpus", "objective"),
    PINNED,
    ids=[f"{objective.name}-{pinned[:4]}" for pinned, _, objective in PINNED],
)
def test_batches_are_unchanged(corpora, pinned, corpus, objective):
    stream = Stream(corpora[corpus], Data(objective=objective, batch_size=12), seed=77)
    made = [stream.build_batch(step) for step in (0, 1, 1000, 2, 3, 17, 18, 10**9)] + [
        stream.build_batch(40, 5, 8)
    ]
    made += [
        stream.build_evaluation_batch(index) for index in (0, stream.num_evaluation_batches - 1)
    ]
    assert hash_batches(made, list(batch_spec.compute_shapes(objective, 12)), objective) == pinned


def test_every_objective_is_pinned():
    assert {objective.name for _, _, objective in PINNED} == OBJECTIVES.keys()


def test_every_hashed_name_is_that_of_a_key():
    known = set()
    for _, _, objective in PINNED:
        spec, names = objective.describe_batch(), HASHED | HASHED_OF.get(objective.name, {})
        assert len({names.get(key, key) for key in spec}) == len(spec), objective.name
        known |= spec.keys()
    assert HASHED.keys() <= known, "a key was renamed: so is it in HASHED"
