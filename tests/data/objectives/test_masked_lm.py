"""Masked rows equal a slow reference's, written in loops from the paper and its authors'
description.
"""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.objectives import MaskedLm
from data.objectives.masking import Masker, take_fitting
from data.pipeline import Stream
from data.rows import hashing
from data.vocabulary.load import read_vocabulary


def slow_mask(row, valid, vocabulary, rate, predictions, whole_words, key):
    """Return (masked row, {position: original}). The inputs are a permutation of the columns and a
    draw for each slot.
    """
    order = hashing.shuffle_columns(hashing.derive_keys(np.array([key]), hashing.ORDER), len(row))[
        0
    ].tolist()
    draws = hashing.draw_uint64(hashing.derive_keys(np.array([key]), hashing.HIDE), predictions)[
        0
    ].tolist()
    candidates = [
        i
        for i, (token, real) in enumerate(zip(row, valid))
        if real and not vocabulary.special[token]
    ]
    number = min(predictions, max(1, round(rate * len(candidates))), len(candidates))
    words = [[i] for i in candidates]
    if whole_words:
        words = []
        for i, (token, real) in enumerate(zip(row, valid)):
            unknown = token == vocabulary.unk
            if not real or (vocabulary.special[token] and not unknown):
                words.append(None)
            elif not words or words[-1] is None or vocabulary.starts_word[token]:
                words.append([i])
            else:
                words[-1].append(i)
        words = [word for word in words if word and not any(row[i] == vocabulary.unk for i in word)]
    chosen = []
    for word in sorted(words, key=lambda word: order[word[0]]):
        if len(chosen) + len(word) <= number:
            chosen += word
    ordinary = [i for i in range(vocabulary.size) if not vocabulary.special[i]]
    masked = list(row)
    for slot, i in enumerate(sorted(chosen)):
        action, pick = draws[slot] % 2**32 / 2**32, (draws[slot] >> 32) * len(ordinary) >> 32
        masked[i] = vocabulary.mask if action < 0.8 else ordinary[pick] if action < 0.9 else row[i]
    return masked, {i: row[i] for i in sorted(chosen)}


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize(("rate", "predictions"), [(0.15, 5), (0.4, 13), (0.05, 32), (0.9, 9)])
def test_masks_are_those_of_the_slow_reference(vocabulary, whole_words, rate, predictions):
    objective = MaskedLm(
        length=32,
        max_predictions=predictions,
        mask_rate=rate,
        whole_words=whole_words,
        rows="documents",
    )
    rng = np.random.default_rng(0)
    rows = rng.integers(5, vocabulary.size, (60, 32)).astype(np.int32)
    rows[rng.random(rows.shape) < 0.03] = vocabulary.unk
    rows[:, 0] = vocabulary.cls
    lengths = rng.integers(2, 31, 60)
    lengths[:3] = 30, 0, 1
    valid = np.arange(32) < lengths[:, None] + 2
    rows[~valid] = vocabulary.pad
    rows[np.arange(60), lengths + 1] = vocabulary.sep
    rows[5, 9] = vocabulary.sep
    masked, keys = rows.copy(), hashing.derive_keys(3, np.arange(60))
    batch = Masker(objective, vocabulary)(masked, valid, keys)
    for i in range(60):
        expected, targets = slow_mask(
            rows[i].tolist(), valid[i], vocabulary, rate, predictions, whole_words, keys[i]
        )
        used = batch["label_weights"][i] == 1
        assert (
            dict(
                zip(batch["masked_positions"][i, used].tolist(), batch["labels"][i, used].tolist())
            )
            == targets
        )
        assert batch["masked_positions"][i, used].tolist() == sorted(targets) and used.sum() == len(
            targets
        )
        assert masked[i].tolist() == expected
        assert not batch["masked_positions"][i, ~used].any() and not batch["labels"][i, ~used].any()
        assert not batch["label_weights"][i, ~used].any()


@pytest.mark.parametrize("special_ids", [(1, 2), range(4), (0, 3, 39), range(0, 40, 5)], ids=str)
def test_special_ids_are_never_masked_whatever_their_number(special_ids):
    special = np.isin(np.arange(40), special_ids)
    vocabulary = SimpleNamespace(
        special=special, starts_word=~special, size=40, mask=3, unk=1, overlap=0
    )
    rows, keys = (
        np.random.default_rng(0).integers(0, 40, (30, 32)).astype(np.int32),
        hashing.derive_keys(4, np.arange(30)),
    )
    masked = rows.copy()
    Masker(MaskedLm(length=32, max_predictions=20, mask_rate=0.5), vocabulary)(
        masked, np.ones(rows.shape, bool), keys
    )
    for i in range(30):
        assert (
            masked[i].tolist()
            == slow_mask(rows[i].tolist(), np.ones(32), vocabulary, 0.5, 20, False, keys[i])[0]
        )


def test_fitting_is_the_walk():
    rng = np.random.default_rng(1)
    lengths, room = rng.integers(0, 9, (300, 40)), rng.integers(0, 30, 300)
    taken = take_fitting(lengths, room)
    for row, left, got in zip(lengths.tolist(), room.tolist(), taken.tolist()):
        expected = []
        for length in row:
            expected.append(0 < length <= left)
            left -= length if expected[-1] else 0
        assert got == expected


def rows_of(batch, vocabulary):
    """Return the rows without masks, special tokens and padding."""
    tokens = batch["token_ids"].copy()
    for i, j in zip(*np.nonzero(batch["label_weights"])):
        tokens[i, batch["masked_positions"][i, j]] = batch["labels"][i, j]
    assert (tokens[:, 0] == vocabulary.cls).all()
    ends = batch["attention_mask"].sum(axis=1) - 1
    assert (tokens[np.arange(len(tokens)), ends] == vocabulary.sep).all()
    assert (tokens[~batch["attention_mask"]] == vocabulary.pad).all()
    return [tuple(row[1:end]) for row, end in zip(tokens.tolist(), ends)]


def test_rows_of_an_epoch_are_the_documents(store, documents, vocabulary):
    data = Data(objective=MaskedLm(length=22, max_predictions=4, rows="documents"), batch_size=8)
    stream = Stream(store, data, seed=5)
    flat = [[i for sentence in document for i in sentence] for document in documents[:36]]
    expected = Counter(
        tuple(document[i : i + 20]) for document in flat for i in range(0, len(document), 20)
    )
    seen = Counter()
    for step in range(-(-stream.num_rows // 8)):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, data.objective, 8)
        seen.update(rows_of(batch, vocabulary)[: stream.num_rows - step * 8])
    assert seen == expected and stream.num_rows == sum(expected.values())


def test_joined_rows_of_an_epoch_are_the_stream(store, documents, vocabulary):
    data = Data(objective=MaskedLm(length=22, max_predictions=4, rows="windows"), batch_size=8)
    stream = Stream(store, data, seed=5)
    text = []
    for document in documents[:36]:
        text += [vocabulary.sep] * bool(text) + [i for sentence in document for i in sentence]
    expected = Counter(tuple(text[min(i, len(text) - 20) :][:20]) for i in range(0, len(text), 20))
    seen = Counter()
    for step in range(-(-stream.num_rows // 8)):
        batch = stream.build_batch(step)
        assert batch["attention_mask"].all()
        seen.update(rows_of(batch, vocabulary)[: stream.num_rows - step * 8])
    assert seen == expected


def test_rows_of_full_sentences(store, documents, vocabulary):
    """Liu et al. (2019), section 4.2: as many consecutive sentences as fit, with a separator
    between documents.
    """
    data = Data(objective=MaskedLm(length=122, max_predictions=18, rows="sentences"), batch_size=8)
    stream = Stream(store, data, seed=5)
    expected, row, before = Counter(), [], None
    for number, document in enumerate(documents[:36]):
        for sentence in document:
            between = [vocabulary.sep] if row and before != number else []
            if len(row) + len(between) + len(sentence) > 120:
                expected[tuple(row)] += 1
                row, between = [], []
            row, before = row + between + sentence, number
    expected[tuple(row)] += 1
    seen = Counter()
    for step in range(-(-stream.num_rows // 8)):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, data.objective, 8)
        seen.update(rows_of(batch, vocabulary)[: stream.num_rows - step * 8])
    assert seen == expected
    assert sum(map(len, seen.elements())) / (120 * stream.num_rows) > 0.9  # so rows are full


def count_masks(stream, steps):
    """Count (masked, tokens, [MASK], unchanged) over some batches."""
    counts = np.zeros(4, np.int64)
    for step in range(steps):
        batch = stream.build_batch(step)
        used = batch["label_weights"] == 1
        now = np.take_along_axis(batch["token_ids"], batch["masked_positions"], axis=1)[used]
        counts += (
            used.sum(),
            batch["attention_mask"].sum() - 2 * len(used),
            (now == stream.vocabulary.mask).sum(),
            (now == batch["labels"][used]).sum(),
        )
    return counts


def test_rate_and_shares(store):
    stream = Stream(
        store,
        Data(objective=MaskedLm(length=62, max_predictions=9, rows="documents"), batch_size=64),
        seed=1,
    )
    masked, tokens, hidden, unchanged = count_masks(stream, 60)
    assert abs(masked / tokens - 0.15) < 0.01  # rounded per row
    assert abs(hidden / masked - 0.8) < 4 * np.sqrt(0.16 / masked)
    ordinary = (~stream.vocabulary.special).sum()
    unchanged_share = 0.1 + 0.1 / ordinary  # a random id can be the true one
    assert abs(unchanged / masked - unchanged_share) < 4 * np.sqrt(0.09 / masked)


def find_masks(stream, epochs):
    """Return {row: masked positions} of each epoch."""
    found = [{} for _ in range(epochs)]
    for step in range(epochs * stream.num_rows // 4):
        batch = stream.build_batch(step)
        _, epoch_B, row_B = stream.load_rows(step * 4 + np.arange(4))
        for epoch, row, positions, weights in zip(
            epoch_B, row_B.tolist(), batch["masked_positions"], batch["label_weights"]
        ):
            found[epoch][row] = tuple(positions[weights == 1].tolist())
    return found


@pytest.mark.parametrize("kind", ["documents", "sentences"])
def test_masks_are_new_every_epoch_or_repeat_after_the_duplicates(store, kind):
    """Dynamic masking (Liu et al. 2019, section 4.1) and BERT's static masks: the same seed and
    step give the same masks.
    """

    def make_stream(duplicates):
        return Stream(
            store,
            Data(objective=MaskedLm(62, 10, dupe_factor=duplicates, rows=kind), batch_size=4),
            seed=1,
        )

    rows = make_stream(0).num_rows
    dynamic, static = find_masks(make_stream(0), 4), find_masks(make_stream(2), 4)
    assert dynamic == find_masks(make_stream(0), 4)
    assert all(sorted(found) == list(range(rows)) for found in dynamic + static)
    assert static[0] == static[2] and static[1] == static[3]
    for other in (dynamic[1], dynamic[2], static[1]):
        assert (
            sum(dynamic[0][row] == other[row] for row in range(rows)) < rows / 3
        )  # short rows have few candidates


WORDS = {
    "vocab_bert_uncased/vocab.txt": lambda piece: not piece.startswith("##"),
    "vocab_gpt2/encoder.json": lambda piece: piece.startswith("Ġ"),
    "vocab_t5/t5_spiece.model": lambda piece: piece.startswith("▁"),
}


@pytest.mark.parametrize("name", WORDS)
def test_whole_words_in_released_vocabularies(corpora, name):
    vocabulary = read_vocabulary(corpora / name)
    text = "The electrophysiologist's uncharacteristically straightforward counterrevolutionaries misunderstood it."
    ids = vocabulary.encode(text)[:60]
    words, begins = [], WORDS[name]
    for i, token in enumerate(ids):
        if i == 0 or begins(vocabulary.id_to_piece(token)):
            words.append(set())
        words[-1].add(i + 1)
    assert any(len(word) > 2 for word in words)
    for role, substitute in (
        ("cls", 0),
        ("sep", 0),
        ("mask", 0),
    ):  # a missing special token gets some id
        if getattr(vocabulary, role) is None:
            setattr(vocabulary, role, substitute)
    tokens = np.tile(np.array([vocabulary.cls, *ids, vocabulary.sep], np.int32), (500, 1))
    marks = vocabulary.special.copy()
    marks[[vocabulary.cls, vocabulary.sep]] = True
    vocabulary.special = marks
    objective = MaskedLm(
        length=tokens.shape[1],
        max_predictions=10,
        mask_rate=0.3,
        whole_words=True,
        rows="documents",
    )
    batch = Masker(objective, vocabulary)(
        tokens, np.ones(tokens.shape, bool), hashing.derive_keys(1, np.arange(500))
    )
    masked_words = 0
    for positions, weights in zip(batch["masked_positions"], batch["label_weights"]):
        masked = set(positions[weights == 1].tolist())
        assert masked and all(word <= masked or not word & masked for word in words)
        masked_words += sum(len(word) > 1 and word <= masked for word in words)
    assert masked_words > 100


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (MaskedLm(length=2), "length=2"),
        (MaskedLm(mask_rate=0.0), "mask_rate=0.0"),
        (MaskedLm(mask_rate=1.0), "mask_rate=1.0"),
        (
            MaskedLm(max_predictions=18),
            "max_predictions=18 is fewer than the 19 tokens that mask_rate=0.15 masks in a row of",
        ),
        (MaskedLm(max_predictions=0), "max_predictions=0"),
        (MaskedLm(max_predictions=129), "more than length=128"),
        (MaskedLm(dupe_factor=-1), "dupe_factor=-1"),
    ],
)
def test_settings_that_make_no_sense(vocabulary, objective, message):
    with pytest.raises(ValueError, match=message):
        objective.check_vocabulary(vocabulary)


def test_a_vocabulary_without_mask_is_refused(t5_vocabulary, vocabulary):
    with pytest.raises(ValueError, match=r"masked_lm needs the special token\(s\) cls, sep, mask"):
        MaskedLm().check_vocabulary(t5_vocabulary)
    MaskedLm().check_vocabulary(vocabulary)
    MaskedLm(length=512, max_predictions=77).check_vocabulary(vocabulary)


def test_every_masked_token_can_become_the_mask(vocabulary):
    """The tokens are the same that the other shares choose, and none stays or becomes another."""
    rows = np.random.default_rng(0).integers(5, vocabulary.size, (40, 32)).astype(np.int32)
    keys, found = hashing.derive_keys(3, np.arange(40)), []
    for masks_only in (False, True):
        objective = MaskedLm(length=32, max_predictions=9, mask_rate=0.2, masks_only=masks_only)
        masked = rows.copy()
        masker = Masker(objective, vocabulary, shares=objective.shares)
        batch = masker(masked, np.ones(rows.shape, bool), keys)
        found.append(batch["masked_positions"])
    np.testing.assert_array_equal(*found)
    is_chosen = np.zeros(rows.shape, bool)
    used = batch["label_weights"] == 1
    is_chosen[np.nonzero(used)[0], batch["masked_positions"][used]] = True
    np.testing.assert_array_equal(masked, np.where(is_chosen, vocabulary.mask, rows))
