"""Evaluation scores each held-out token at most once, whatever a source's last row repeats.

Every token of the store has an id of its own, so a token that is scored twice is an id that two
targets have, and what must be scored is counted from the store alone.
"""

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from data.config import Data
from data.objectives import (
    OBJECTIVES,
    BidirectionalLm,
    CausalLm,
    Denoising,
    Distillation,
    MaskedLm,
    MaskedNextToken,
    PermutationLm,
    PrefixLm,
    ReplacedToken,
    SpanCorruption,
)
from data.pipeline import Stream
from data.store.reader import Store
from data.store.split import MixtureSource, Split

FIRST_ID = 200  # of the text; the ids below are special
EOS = 6
# Documents of three sources, none of which fills its last row; the second is shorter than a row.
SOURCES = (("long", (9, 0, 14, 25, 3)), ("short", (5, 2)), ("none", ()), ("middle", (20, 11)))
ALL_MASKED = {"mask_rate": 0.99, "max_predictions": 12}
WINDOWS = (
    MaskedLm(length=14, rows="windows", **ALL_MASKED),
    Distillation(length=14, rows="windows", **ALL_MASKED),
    ReplacedToken(length=14, rows="windows", **ALL_MASKED),
    MaskedNextToken(length=13, **ALL_MASKED),
)


class UniqueStore(Store):
    """A store in memory whose held-out tokens have the ids FIRST_ID, FIRST_ID + 1, and so on."""

    def __init__(self):
        super().__init__("nowhere", {})
        lengths = [length for _, documents in SOURCES for length in documents]
        starts_D, documents, sources = np.concatenate([[0], np.cumsum(lengths)]), 0, []
        for name, own in SOURCES:
            share = (documents, documents := documents + len(own))
            sources.append(MixtureSource(name, share, 0.25))
        ids = np.arange(FIRST_ID, FIRST_ID + sum(lengths)).astype(np.uint16)
        self.only = Split(ids, starts_D, starts_D, tuple(sources))
        special = np.arange(FIRST_ID + len(ids)) < FIRST_ID
        self.vocabulary = SimpleNamespace(
            kind="unique", overlap=0, size=len(special), special=special, starts_word=~special,
            sentinels=tuple(range(199, 99, -1)), pieces=tuple(map(str, range(len(special)))),
            **{role: i for i, role in enumerate(("pad", "unk", "cls", "sep", "mask", "bos", "eos"))},
        )  # fmt: skip

    def open_split(self, name):
        return self.only


def list_own_ids():
    """Return the ids of each source's text."""
    bounds = np.cumsum([FIRST_ID, *(sum(own) for _, own in SOURCES)])
    return [set(range(low, high)) for low, high in itertools.pairwise(bounds)]


def read_heldout(objective, batch_size=4):
    """Return (stream, its evaluation batches)."""
    stream = Stream(
        UniqueStore(), Data(objective=objective, batch_size=batch_size), split="heldout"
    )
    batches = [stream.build_evaluation_batch(i) for i in range(stream.num_evaluation_batches)]
    return stream, batches


def count_scored(batches):
    """Return how often each id of the text is a target that counts, and how many targets count."""
    targets = np.concatenate([batch["labels"][batch["label_weights"] > 0] for batch in batches])
    return Counter(targets[targets >= FIRST_ID].tolist()), len(targets)


@pytest.mark.parametrize("batch_size", [1, 4, 64])
@pytest.mark.parametrize("objective", WINDOWS, ids=lambda objective: objective.name)
def test_each_token_of_windows_is_scored_once(objective, batch_size):
    _, batches = read_heldout(objective, batch_size)
    scored, num_targets = count_scored(batches)
    assert scored == Counter(id_ for own in list_own_ids() for id_ in own)
    assert num_targets == sum(sum(documents) for _, documents in SOURCES)


def test_predicted_tokens_of_windows_are_scored_at_most_once():
    """Half of each row is predicted; what two rows have is scored in the one whose own it is."""
    objective = PermutationLm(length=14, partial=2, rows="windows")
    stream, batches = read_heldout(objective)
    scored, num_targets = count_scored(batches)
    assert max(scored.values()) == 1 and len(scored) == num_targets
    repeated = stream.build_evaluation_rows(np.arange(stream.num_rows))
    assert max(count_scored([repeated])[0].values()) == 2
    assert num_targets < repeated["label_weights"].sum()


@pytest.mark.parametrize("batch_size", [1, 4, 64])
@pytest.mark.parametrize(
    ("objective", "weights"),
    [(WINDOWS[1], "state_weights"), (WINDOWS[2], "discriminator_weights")],
    ids=["distillation", "replaced_token"],
)
def test_each_position_is_compared_once(objective, weights, batch_size):
    """Of a teacher's states and of a discriminator's targets: each token of the text once, [CLS]
    and [SEP] of each row. Rows that fill up the last batch have none.
    """
    stream, batches = read_heldout(objective, batch_size)
    counted = np.concatenate([batch[weights] for batch in batches])
    separators = sum(sum(length > 0 for length in own) - 1 for _, own in SOURCES if own)
    tokens = sum(sum(own) for _, own in SOURCES)
    assert counted.sum() == tokens + separators + 2 * stream.num_rows


@pytest.mark.parametrize("end_of_text", [True, False])
def test_each_token_but_the_first_of_a_source_is_the_next_token_once(end_of_text):
    _, batches = read_heldout(CausalLm(length=10, end_of_text=end_of_text))
    scored, num_targets = count_scored(batches)
    expected = Counter(id_ for own in list_own_ids() for id_ in sorted(own)[1:])
    separators = sum(sum(length > 0 for length in own) - 1 for _, own in SOURCES if own)
    assert scored == expected
    assert num_targets == len(expected) + end_of_text * separators


@pytest.mark.parametrize(
    ("labels", "weights"),
    [("labels", "label_weights"), ("backward_labels", "backward_weights")],
)
def test_each_direction_predicts_each_word_once(labels, weights):
    """And the ends of each sentence, but for the first end of a source. A sentence is a document
    here.
    """
    _, batches = read_heldout(BidirectionalLm(length=7, characters=0))
    batches = [{"labels": batch[labels], "label_weights": batch[weights]} for batch in batches]
    scored, num_targets = count_scored(batches)
    assert scored == Counter(id_ for own in list_own_ids() for id_ in own)
    sentences = sum(sum(length > 0 for length in own) for _, own in SOURCES)
    assert num_targets == len(scored) + 2 * sentences - sum(any(own) for _, own in SOURCES)


@pytest.mark.parametrize(
    ("objective", "width"),
    [
        (PrefixLm(length=10), 10),
        (SpanCorruption(inputs=12, noise_density=0.4, mean_span=2.0), None),
        (SpanCorruption(inputs=13, noise_density=0.4, mean_span=2.0, mode="150"), None),
        (SpanCorruption(inputs=12, noise_density=0.4, mean_span=99.0), None),
    ],
)
def test_removed_tokens_are_scored_once(objective, width):
    """What a row removes from its own text is scored; its own text ends where the next begins."""
    width = width or objective.raw_length
    stream, batches = read_heldout(objective, batch_size=3)
    scored, num_targets = count_scored(batches)
    expected, own_rows = set(), []
    for own in list_own_ids():
        own_rows += [set(sorted(own)[i : i + width]) for i in range(0, len(own), width)]
    inputs_BL = stream.build_evaluation_rows(np.arange(stream.num_rows))["encoder_token_ids"]
    for own, visible_L in zip(own_rows, inputs_BL, strict=True):
        expected |= own - set(visible_L.tolist())
    assert scored == Counter(expected) and len(expected) > 10
    assert num_targets >= len(expected) + stream.num_rows  # and each row's </s>


def test_a_sentinel_counts_with_its_span():
    objective = SpanCorruption(inputs=12, noise_density=0.4, mean_span=2.0)
    stream, batches = read_heldout(objective, batch_size=1)
    rows = {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    for labels, weights in zip(rows["labels"], rows["label_weights"]):
        spans = np.split(weights[:-1], np.flatnonzero(labels < FIRST_ID)[1:-1])
        assert all(span[0] == span[1:].max() for span in spans) and weights[-1] == 1
    assert not rows["label_weights"].all()


@pytest.mark.parametrize(
    "objective",
    [
        Denoising(length=12),
        MaskedLm(length=14, rows="documents", **ALL_MASKED),
        MaskedLm(length=14, rows="sentences", **ALL_MASKED),
        MaskedLm(length=14, rows="packed", **ALL_MASKED),
    ],
)
def test_rows_without_overlap_score_each_token_once(objective):
    scored, _ = count_scored(read_heldout(objective)[1])
    assert scored == Counter(id_ for own in list_own_ids() for id_ in own)


@pytest.mark.parametrize("objective", [*WINDOWS, CausalLm(length=10), PrefixLm(length=10)])
def test_training_counts_every_target_of_its_rows(objective):
    """Only evaluation drops what a last row repeats."""
    stream = Stream(UniqueStore(), Data(objective=objective, batch_size=4), split="train")
    rows = stream.build(np.arange(stream.num_rows), np.arange(stream.num_rows, dtype=np.uint64))
    scored, _ = count_scored([rows])
    assert max(scored.values()) == 2


def test_every_objective_of_one_stream_of_text_is_tested():
    """An objective is tested above unless its rows are labelled examples or drawn pairs."""
    tested = {objective.name for objective in WINDOWS} | {"causal_lm", "prefix_lm"}
    tested |= {"bidirectional_lm", "masked_diffusion"}  # tests/data/objectives has its own
    tested |= {"span_corruption", "denoising", "permutation_lm"}
    examples = {"classification", "regression", "tagging", "multiple_choice", "answer_span"}
    examples |= {"seq2seq", "text2text", "partitioned_fields", "contrastive", "similarity"}
    examples |= {"teacher_vectors"}
    examples |= {"image_classification", "image_distillation", "masked_patches"}
    pairs = {"sentence_pair", "sentence_order", "words_and_pictures"}
    assert tested | examples | pairs == OBJECTIVES.keys()
