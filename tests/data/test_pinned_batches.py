"""Batches are bit-identical across versions, so that a newer version resumes a run with the same
rows.

The digests were taken before the code was reorganised. A change of the contents of training batches
ends every run under way, and one of evaluation batches makes scores differ from earlier ones:
report it in docs/notebook and write the new digests here.

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
    BidirectionalLm,
    CausalLm,
    Classification,
    Contrastive,
    Denoising,
    Distillation,
    MaskedDiffusion,
    MaskedLm,
    MaskedNextToken,
    MultipleChoice,
    PartitionedFields,
    PermutationLm,
    PrefixLm,
    Regression,
    ReplacedToken,
    SentenceOrder,
    SentencePair,
    Seq2Seq,
    Similarity,
    SpanCorruption,
    Tagging,
    TeacherVectors,
    Text2Text,
    WordsAndPictures,
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
UNHASHED = ("text_tokens",)  # newer than the digests; tests/data/examples/test_qa.py has it
HASHED_OF = {"regression": {"labels": "scores"}}  # of one objective

PINNED = (  # (digest of training batches, of evaluation batches, corpus, objective)
    (
        "1dbbea2bd63700a3",
        "6d7bd7e9ba0d3ca3",
        "text",
        MaskedLm(length=32, max_predictions=6, rows="documents"),
    ),
    (
        "d7c63116923969d3",
        "209c2726736e70d8",
        "text",
        MaskedLm(length=32, max_predictions=6, rows="crops"),
    ),
    (
        "bfe4638da07970e3",
        "f29d944d6696d33b",
        "text",
        MaskedLm(length=27, max_predictions=27, mask_rate=0.4, rows="documents"),
    ),
    (
        "30458a518d637ea0",
        "fba5e48f2dae45be",
        "text",
        MaskedLm(length=32, max_predictions=6, rows="windows"),
    ),
    (
        "ceffcdbbcccf6575",
        "5f9c6afe733b5f26",
        "text",
        MaskedLm(length=700, max_predictions=300, rows="windows"),
    ),
    (
        "275fd512a747aa4c",
        "fe931de3b27caa0a",
        "text",
        MaskedLm(length=32, max_predictions=6, rows="sentences"),
    ),
    (
        "edeb164bf9d958c3",
        "44642d011d33e7f3",
        "text",
        MaskedLm(length=64, max_predictions=10, rows="packed"),
    ),
    (
        "a4ec91153a4be181",
        "8cb792e79d0de8f7",
        "text",
        MaskedLm(length=250, max_predictions=60, rows="packed"),
    ),
    (
        "c119d4bff1210c2a",
        "a0ea2fdcaac27e45",
        "text",
        MaskedLm(length=21, max_predictions=9, mask_rate=0.3, whole_words=True, rows="packed"),
    ),
    (
        "5e4d664b55c20aba",
        "74790fff9ba06a26",
        "text",
        MaskedLm(length=32, max_predictions=6, whole_words=True, dupe_factor=3, rows="documents"),
    ),
    ("ebdc61d80534a003", "ce1b2a2655199bbc", "text", SentencePair(length=32, max_predictions=6)),
    (
        "d67f6fb3dac8734a",
        "be4be76423236896",
        "text",
        SentencePair(length=35, max_predictions=6, whole_words=True, short_seq_prob=0.5),
    ),
    ("00c553d62de86d49", "3c302942d7b18514", "text", SentenceOrder(length=48, max_predictions=9)),
    (
        "d6b59294c25f2dd4",
        "0d92907325349693",
        "text",
        ReplacedToken(length=32, max_predictions=6, rows="packed"),
    ),
    ("9eeb7308ea758fef", "dae51d3af281453f", "text", SpanCorruption(inputs=40)),
    ("ba13153667b44c60", "99ff11f408fc106e", "text", Denoising(length=48)),
    (
        "ae25e354074cfa4d",
        "5bd2d9996c1d66d3",
        "text",
        MaskedNextToken(length=32, max_predictions=9, mask_rate=0.3),
    ),
    ("461a12f1171a0aa3", "84117d71fa152a81", "text", MaskedDiffusion(length=32)),
    ("a22cc3d400914f0a", "c9257b8f541bcffb", "text", PermutationLm(length=32)),
    (
        "1cfa0674347893f8",
        "f831a475fdc15d0f",
        "text",
        PermutationLm(length=32, partial=4, rows="windows"),
    ),
    ("6a4a5f662c9e63a3", "072e87e3f1488db9", "text", SpanCorruption(inputs=40, mode="700")),
    ("2d3ebb4944f95a42", "3386df69c40eb601", "text", CausalLm(length=32)),
    ("3dcd63d257bea67f", "a59aff7ae6eaa60f", "text", BidirectionalLm(length=16, characters=0)),
    ("c1d1bd67b978247a", "327d85b9045b1c6e", "text", PrefixLm(length=32)),
    (
        "1fab98755814cc92",
        "462a41bd9899f930",
        "text",
        Distillation(length=32, max_predictions=6, rows="documents"),
    ),
    (
        "74515754ac6954f6",
        "8d32dc57dd231c6c",
        "text",
        Distillation(length=64, max_predictions=10, rows="packed"),
    ),
    ("995c608eeaa6e679", "9a1630e8e6835a40", "pairs", Seq2Seq(length=64, target_length=48)),
    ("b628429744afb61c", "ad9e3278e56c078f", "pairs", Text2Text(length=24, target_length=16)),
    (
        "09670673f4348aad",
        "da7dbe1164b8fef9",
        "pairs",
        Text2Text(length=40, target_length=30, start_of_text=True),
    ),
    ("b49a9f3b722eec61", "5e280a4a06339edc", "labels", Classification(length=20)),
    (
        "cc065675c83de5b0",
        "964bd290ed019769",
        "labelled pairs",
        Classification(length=40, separators=2, class_weights=(1.0, 0.5, 2.25)),
    ),
    ("71353fc60c7db656", "ee2c9ba82b48342b", "scores", Regression(length=36)),
    (
        "ffcc89d464f293fc",
        "296471bc69f13d01",
        "tags",
        Tagging(length=60, class_weights=(0.25, 1.0, 1.0, 1.0, 3.0)),
    ),
    ("180bdcfb2748ab14", "5991602b0171bc80", "choices", MultipleChoice(length=32)),
    ("500ef68bb6487292", "bb717273b29a23b0", "choices", Contrastive(length=24, texts=5)),
    ("6111c3084ba6d234", "e7edae003160db88", "labels", Contrastive(length=24)),
    (
        "75b58fcf68165dab",
        "b632cf1ceb96df2f",
        "labels",
        Contrastive(length=24, spans=True, cls_position="last"),
    ),
    ("cbbff2d292223f78", "800a8670ba6abdc6", "scores", Similarity(length=24)),
    ("febbfe6aaed0ee5e", "46af0dd6d38802ea", "vectors", TeacherVectors(length=24, width=3)),
    (
        "98e57ace0b0b3310",
        "843d3ec79020850f",
        "questions",
        AnswerSpan(length=32, stride=8, question=7),
    ),
    (
        "b734d102a5bf8b1c",
        "19273753026d728e",
        "questions",
        AnswerSpan(length=40, stride=4, question=10, separators=2),
    ),
    ("f620533e64b011a2", "1b5eb0f7930f33c3", "articles", PartitionedFields(length=50)),
    (
        "a409831c6de3b2ad",
        "6b929682e1a7b185",
        "pairs",
        WordsAndPictures(length=64, max_predictions=24),
    ),
)
ARTICLE_PIECES = ("<|beginhead|>", "<|endhead|>", "<|beginbody|>", "<|endbody|>")  # ids 690 to 693


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


def article_split(sources) -> Split:
    """Return a split of 60 articles of a head, a body or both, of 1 to 70 tokens each."""
    texts, sentences = [], []
    for d in range(60):
        begins = [690] * (d % 5 > 0) + [692] * (d % 7 > 0 or d % 5 == 0)
        for begin in begins:
            size = 1 + (5 * d * d + begin) % (10 if begin == 690 else 70)
            texts.append([begin, *((np.arange(size) ** 2 * 31 + d) % 680 + 10), begin + 1])
        sentences.append(len(begins))
    starts_S = np.concatenate([[0], np.cumsum([len(text) for text in texts])])
    starts_D = starts_S[np.concatenate([[0], np.cumsum(sentences)])]
    return Split(np.concatenate(texts).astype(np.uint16), starts_D, starts_S, sources)


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
        "vectors": arithmetic_split(
            [1] * 60, two, labels=(np.arange(180.0) ** 2 % 11 / 4).astype(np.float32).reshape(60, 3)
        ),
        "tags": arithmetic_split(
            [1 + d % 9 for d in range(60)], two, tags=(np.arange(291) ** 2 % 7).astype(np.float32)
        ),
        "choices": arithmetic_split(
            [5] * 60, two, labels=(np.arange(60) ** 2 % 4).astype(np.float32)
        ),
        "pairs": arithmetic_split([2] * 60, two, folder=folder),
        "questions": question_split(folder),
        "articles": article_split(two),
    }
    special = np.arange(800) < 10
    special[700:] = True
    vocabulary = SimpleNamespace(
        kind="arithmetic", size=800, overlap=0, special=special, starts_word=(np.arange(800) % 3 != 0) | special,
        script_boundaries=np.zeros((2, 800), bool), sentinels=tuple(range(799, 699, -1)),
        pieces=(*map(str, range(690)), *ARTICLE_PIECES, *map(str, range(694, 800))),
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
        for key in (key for key in spec if key not in UNHASHED):
            found.update(f"{names.get(key, key)} {batch[key].dtype} {batch[key].shape} ".encode())
            found.update(np.ascontiguousarray(batch[key]).tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize(
    ("training", "evaluation", "corpus", "objective"),
    PINNED,
    ids=[f"{objective.name}-{training[:4]}" for training, _, _, objective in PINNED],
)
def test_batches_are_unchanged(corpora, training, evaluation, corpus, objective):
    stream = Stream(corpora[corpus], Data(objective=objective, batch_size=12), seed=77)
    made = [stream.build_batch(step) for step in (0, 1, 1000, 2, 3, 17, 18, 10**9)] + [
        stream.build_batch(40, 5, 8)
    ]
    scored = [
        stream.build_evaluation_batch(index) for index in (0, stream.num_evaluation_batches - 1)
    ]
    spec = list(batch_spec.compute_shapes(objective, 12))
    assert hash_batches(made, spec, objective) == training
    assert hash_batches(scored, spec, objective) == evaluation


def test_every_objective_is_pinned():
    """Images are in the tests of their objectives: without resizing, which is Pillow's."""
    pinned = {objective.name for *_, objective in PINNED}
    images = {"image_classification", "image_distillation", "masked_patches"}
    assert pinned == OBJECTIVES.keys() - images


def test_every_hashed_name_is_that_of_a_key():
    known = set()
    for *_, objective in PINNED:
        spec, names = objective.describe_batch(), HASHED | HASHED_OF.get(objective.name, {})
        assert len({names.get(key, key) for key in spec}) == len(spec), objective.name
        known |= spec.keys()
    assert HASHED.keys() <= known, "a key was renamed: so is it in HASHED"
