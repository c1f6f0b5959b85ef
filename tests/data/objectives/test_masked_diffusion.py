"""Masked diffusion: rates, masks and weights of training and of evaluation, and what their mean is.

The bound is tested with the true conditional probabilities of a Markov source in place of a model.
"""

import numpy as np
import pytest

from data import batch_spec
from data.config import Data
from data.inspection.batch_report import inspect_batches
from data.objectives import MaskedDiffusion, MaskedLm
from data.objectives.masked_diffusion import choose_first, spread_over_rows
from data.pipeline import Stream
from tests import markov

TEXT = 6  # letters of a text of the Markov source
MASK = 4


@pytest.fixture
def letters():
    return markov.LetterStore(markov.draw_texts(np.random.default_rng(0), 3000, TEXT))


def read_rows(batch):
    """Return (text, bool mask) of the letters of each row, and check what the batch shows of them."""
    positions, used = batch["masked_positions"], batch["label_weights"] > 0
    row, slot = np.nonzero(used)
    assert (batch["token_ids"][row, positions[row, slot]] == MASK).all()
    masked = batch["token_ids"] == MASK
    assert masked.sum() == used.sum()
    ids = batch["token_ids"].copy()
    ids[row, positions[row, slot]] = batch["labels"][row, slot]
    return ids[:, 1 : TEXT + 1] - 7, masked[:, 1 : TEXT + 1]


def test_rates_are_evenly_spaced_and_each_host_reads_its_rows_of_them(store):
    objective = MaskedDiffusion(length=30, rows="documents")
    stream = Stream(store, Data(objective=objective, batch_size=16), seed=3)
    starts, masked, expected = [], 0, 0.0
    for step in range(40):
        batch = stream.build_batch(step)
        batch_spec.check_batch(batch, objective, 16, stream.vocabulary)
        rates = objective.least_rate + (1 - objective.least_rate) * np.arange(16) / 16
        weights = batch["label_weights"].max(axis=1)
        seen = weights > 0
        start = (1 / weights[seen] - rates[seen]) / (1 - objective.least_rate) % 1  # of the batch
        away = np.abs(start - start[0])
        assert (np.minimum(away, 1 - away) < 1e-3).all()
        starts.append(start[0] * 16 % 1)
        masked += (batch["label_weights"] > 0).sum()
        all_rates = (start[0] + np.arange(16) / 16) % 1
        expected += (batch["text_weights"].sum(axis=1) * all_rates).sum()
        halves = [stream.build_batch(step, 0, 8), stream.build_batch(step, 8, 16)]
        for key, whole in batch.items():
            np.testing.assert_array_equal(np.concatenate([half[key] for half in halves]), whole)
    assert abs(masked - expected) < 5 * (expected / 4) ** 0.5
    assert 0.3 < np.mean(starts) < 0.7 and np.ptp(starts) > 0.7  # each batch begins elsewhere


def test_an_evaluation_masks_exact_counts_that_no_seed_and_no_batch_size_changes(letters):
    objective = MaskedDiffusion(length=TEXT + 2, rows="documents")
    seen = [
        Stream(letters, Data(objective=objective, batch_size=size), split="heldout", seed=seed)
        for seed, size in ((0, 600), (9, 250))
    ]
    first, second = (
        {
            key: np.concatenate([stream.build_evaluation_batch(i)[key] for i in range(count)])
            for key in objective.describe_batch()
        }
        for stream, count in zip(seen, (5, 12), strict=True)
    )
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key])
    number = (first["label_weights"] > 0).sum(axis=1)
    assert np.bincount(number)[1:].tolist() == pytest.approx([500] * TEXT, abs=2)
    np.testing.assert_allclose(first["label_weights"].sum(axis=1), TEXT, rtol=1e-6)
    assert (first["text_weights"].sum(axis=1) == TEXT).all()
    _, masked = read_rows(first)
    assert masked.sum(axis=0).tolist() == pytest.approx([masked.sum() / TEXT] * TEXT, rel=0.1)


@pytest.mark.parametrize("kind", ["training", "evaluation"])
def test_the_mean_with_true_conditionals_is_the_likelihood(letters, kind):
    """A bound is exact if each conditional is the source's own; with weights of 1 it is not."""
    objective = MaskedDiffusion(length=TEXT + 2, rows="documents", least_rate=1e-6)
    stream = Stream(letters, Data(objective=objective, batch_size=3000), split="heldout", seed=1)
    build = stream.build_batch if kind == "training" else stream.build_evaluation_batch
    batch = build(0)
    texts, masked = read_rows(batch)
    bounds, plain, exact = [], [], []
    for text, hidden, weights in zip(texts, masked, batch["label_weights"], strict=True):
        log_p = markov.compute_conditionals(text, hidden)
        bounds.append(-(weights[: len(log_p)] * log_p).sum())
        plain.append(-log_p.sum())
        exact.append(-markov.compute_log_likelihood(text))
    difference = np.array(bounds) - exact
    error = difference.std() / len(exact) ** 0.5
    assert abs(difference.mean()) < 4 * error and error < 0.1
    assert np.mean(plain) < np.mean(exact) - 1


def test_words_are_scored_once_by_windows_that_share_them(store):
    objective = MaskedDiffusion(length=14, rows="windows")
    stream = Stream(store, Data(objective=objective, batch_size=8), split="heldout")
    total = sum(
        stream.build_evaluation_batch(i)["text_weights"].sum()
        for i in range(stream.num_evaluation_batches)
    )
    assert total == (~stream.vocabulary.special[np.asarray(stream.split.tokens)]).sum()


def test_counts_follow_the_golden_ratio_and_the_first_are_taken():
    spread = spread_over_rows(np.arange(1000, 1100), np.full(100, 10))
    assert (np.bincount(spread, minlength=10) >= 9).all()
    candidates = np.array([[True, False, True, True], [False] * 4])
    order = np.array([[8, 1, 6, 3], [8, 1, 6, 3]], np.uint32)
    chosen = choose_first(candidates, order, np.array([2, 0]))
    assert chosen.tolist() == [[False, False, True, True], [False] * 4]


DAMAGES = {
    "rows whose weight is not 1 / rate, rates not evenly spaced": lambda batch: batch.update(
        label_weights=batch["label_weights"] * np.linspace(1, 2, 16, dtype=np.float32)[:, None]
    ),
    "masked by another token than [MASK]": lambda batch: batch["token_ids"].put(
        np.flatnonzero(batch["token_ids"] == batch["mask"]), 9
    ),
    "tokens that the loss is not divided by, others that it is": lambda batch: batch[
        "text_weights"
    ].fill(1),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_inspect_names_what_a_damage_breaks(store, name):
    objective = MaskedDiffusion(length=22, rows="documents")
    stream = Stream(store, Data(objective=objective, batch_size=16), seed=3)
    assert inspect_batches(stream, batches=3)["passed"]
    build = stream.build_batch

    def build_damaged(*arguments):
        batch = build(*arguments)
        if len(batch["token_ids"]) == 16:
            batch["mask"] = stream.vocabulary.mask
            DAMAGES[name](batch)
            del batch["mask"]
        return batch

    stream.build_batch = build_damaged
    checks = inspect_batches(stream, batches=3)["checks"]
    assert name in [check["name"] for check in checks if not check["passed"]]


def test_settings_that_cannot_be_are_refused(store, t5_store):
    for settings, message in (
        ({"length": 2}, "length=2"),
        ({"least_rate": 0.0}, "least_rate=0"),
        ({"least_rate": 0.5, "most_rate": 0.4}, "most_rate=0.4"),
        ({"most_rate": 1.5}, "most_rate=1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            MaskedDiffusion(**settings).check_vocabulary(store.vocabulary)
    with pytest.raises(ValueError, match="needs the special token"):
        Stream(t5_store, Data(objective=MaskedDiffusion(length=20)))


def test_a_row_is_as_masked_lm_lays_it_out(store):
    ours = Stream(store, Data(objective=MaskedDiffusion(length=20), batch_size=4), seed=5)
    theirs = Stream(
        store, Data(objective=MaskedLm(length=20, max_predictions=9), batch_size=4), seed=5
    )
    first, other = ours.build_batch(2), theirs.build_batch(2)
    for key in ("attention_mask", "segment_ids"):
        np.testing.assert_array_equal(first[key], other[key])
