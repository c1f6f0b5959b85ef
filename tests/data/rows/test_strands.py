"""Half of the training rows of DNA are the reverse complement of their text, held-out rows never."""

import dataclasses

import numpy as np
import pytest

from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.objectives import Distillation, MaskedDiffusion, MaskedLm, ReplacedToken
from data.pipeline import Stream
from data.rows.strands import StrandReverser, draw_reversed_rows
from data.vocabulary.letters.alphabets import make_alphabet
from tests.data.rows.test_crops import restore_texts
from tests.small_store import write_store

KINDS = ("documents", "crops", "windows", "sentences", "packed")
COMPLEMENTS = dict(zip("ACGTN", "TGCAN", strict=True))
MASKED = MaskedLm(length=22, max_predictions=4, reverse_complement=True)
OBJECTIVES = (
    *(dataclasses.replace(MASKED, rows=kind) for kind in KINDS),
    Distillation(length=22, max_predictions=4, rows="documents", reverse_complement=True),
    ReplacedToken(length=22, max_predictions=4, reverse_complement=True),
    MaskedDiffusion(length=22, reverse_complement=True),
)
NAMES = [f"{one.name}-{one.rows}" for one in OBJECTIVES]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store of 60 documents of 1 to 50 nucleotides, in sentences of up to 10."""
    vocabulary, rng = make_alphabet("nucleotides"), np.random.default_rng(0)
    texts = ["".join(rng.choice(list("ACGTN"), 1 + d * d % 50)) for d in range(60)]
    documents = [
        [vocabulary.encode(text[i : i + 10]) for i in range(0, len(text), 10)] for text in texts
    ]
    path = tmp_path_factory.mktemp("strands") / "store"
    return write_store(path, vocabulary, {"all": documents}, heldout={"all": documents[:9]})


def open_stream(store, objective, split="train"):
    return Stream(store, Data(objective=objective, batch_size=8), seed=5, split=split)


def reverse_by_hand(vocabulary, ids):
    """Return the reverse complement of ids; each run of letters is reversed on its own."""
    words, pieces = [[]], [vocabulary.pieces[i] for i in ids]
    for piece in pieces:
        if len(piece) > 1:
            words += [[piece], []]
        else:
            words[-1].insert(0, COMPLEMENTS[piece])
    found = [vocabulary.pieces.index(piece) for word in words for piece in word]
    assert len(found) == len(ids)
    return found


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_rows_are_as_stored_or_reversed_by_their_key(store, objective):
    """Before they are masked, and [CLS], [SEP] and padding do not move."""
    both = open_stream(store, objective)
    forward = dataclasses.replace(objective, reverse_complement=False)
    plain, seen = open_stream(store, forward), set()
    for step in range(3):
        _, key_B = both.draw_keys(both.locate_rows(step) + np.arange(8))
        batch, stored = both.build_batch(step), plain.build_batch(step)
        assert all(
            np.array_equal(batch[key], stored[key])
            for key in batch.keys() & {"attention_mask", "segment_ids"}
        )
        chosen = draw_reversed_rows(key_B).tolist()
        for i, (text, expected) in enumerate(zip(restore_texts(batch), restore_texts(stored))):
            if i in chosen:
                expected = reverse_by_hand(store.vocabulary, expected)
            assert text == expected
            seen.add(i in chosen)
    assert seen == {False, True}


def test_half_of_the_rows_are_reversed():
    assert abs(len(draw_reversed_rows(np.arange(10_000, dtype=np.uint64))) - 5000) < 300


def test_twice_is_never(store):
    stream = open_stream(store, dataclasses.replace(MASKED, reverse_complement=False))
    tokens_BL, key_B = stream.build_batch(0)["token_ids"], np.arange(8, dtype=np.uint64)
    before_BL, reverser = tokens_BL.copy(), StrandReverser(store.vocabulary)
    reverser.reverse_rows(tokens_BL, key_B)
    assert (tokens_BL != before_BL).any()
    reverser.reverse_rows(tokens_BL, key_B)
    np.testing.assert_array_equal(tokens_BL, before_BL)


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_an_evaluation_reads_the_stored_strand(store, split):
    both = open_stream(store, MASKED, split)
    plain = open_stream(store, dataclasses.replace(MASKED, reverse_complement=False), split)
    for index in range(both.num_evaluation_batches):
        one, other = both.build_evaluation_batch(index), plain.build_evaluation_batch(index)
        assert all(np.array_equal(one[key], other[key]) for key in other)
    if split == "heldout":
        one, other = both.build_batch(0), plain.build_batch(0)
        assert all(np.array_equal(one[key], other[key]) for key in other)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_the_inspection_knows_the_strands(store, objective):
    stream = open_stream(store, objective)
    report = inspect_batches(stream, 0, rows=1, batches=12)
    assert [check for check in report["checks"] if not check["passed"]] == []


def test_the_inspection_sees_a_wrong_strand(store):
    stream = open_stream(store, OBJECTIVES[0])
    stream.restore = None
    report = inspect_batches(stream, 0, rows=1, batches=4)
    failed = [check["name"] for check in report["checks"] if not check["passed"]]
    assert failed == ["rows whose text is not the store's"]


@pytest.mark.parametrize("objective", OBJECTIVES[-3:], ids=NAMES[-3:])
def test_letters_without_complement_are_refused(tmp_path, objective):
    vocabulary = make_alphabet("esm2")
    store = write_store(tmp_path / "store", vocabulary, [[vocabulary.encode("LAGVSERT")]])
    with pytest.raises(
        ValueError, match=f"^{objective.name}: reverse_complement=true, but the piece 'L' of"
    ):
        open_stream(store, objective)
