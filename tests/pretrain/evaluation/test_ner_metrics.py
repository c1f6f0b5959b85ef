"""Entity scores equal their definition, and seqeval's."""

import numpy as np
import pytest

from data.store.split import MixtureSource, Split
from models.config.tagger import TaggerConfig
from pretrain.evaluation.task_metrics import check_metrics, compute_metrics
from pretrain.settings.overrides import ConfigError

NAMES = ("O", "B-X", "I-X", "B-Y", "I-Y")
SCORES = ("entity_f1", "entity_precision", "entity_recall", "tag_accuracy")


def score_tags(right, predicted, read=None, names=NAMES, scheme="bio", scores=SCORES):
    """Compute the metrics `scores` of sentences of tags; read: how many words of each are in its
    row.
    """
    counts = [len(sentence) for sentence in right]
    numbers = np.array([names.index(tag) for sentence in right for tag in sentence], np.float32)
    words = 2 * np.arange(len(numbers) + 1)  # two tokens each
    split = Split(
        np.zeros(words[-1], np.uint16),
        words[np.cumsum([0, *counts])],
        words,
        (MixtureSource("s", (0, len(right)), 1.0),),
        tags=numbers,
    )
    rows = np.full((len(right) + 1, 2 * max(counts) + 3), -1.0)  # the last one only pads a batch
    rows[:-1, -1], rows[-1, -1] = 1, 0
    for i, sentence in enumerate(predicted):
        for at, tag in enumerate(sentence[: read[i] if read else None]):
            rows[i, 1 + 2 * at] = names.index(tag)
    return compute_metrics(scores, rows, TaggerConfig(labels=names, scheme=scheme), split)


def test_an_entity_is_found_only_whole():
    right = ["B-X I-X O B-Y".split(), "B-Y O".split()]
    predicted = [
        "B-X I-X O B-X".split(),
        "B-Y I-Y".split(),
    ]  # the first is correct; one has another type, one another end
    found = score_tags(right, predicted)
    assert found == pytest.approx(
        {
            "entity_f1": 1 / 3,
            "entity_precision": 1 / 3,
            "entity_recall": 1 / 3,
            "tag_accuracy": 4 / 6,
        }
    )
    assert score_tags(right, right) == dict.fromkeys(SCORES, 1.0)
    nothing = score_tags(right, [["O"] * 4, ["O"] * 2])
    assert nothing == pytest.approx(
        {"entity_f1": 0, "entity_precision": 0, "entity_recall": 0, "tag_accuracy": 2 / 6}
    )


def test_words_after_a_row_are_predicted_as_outside():
    right = ["B-X I-X O B-Y O".split()]
    found = score_tags(right, right, read=[1])  # B-X alone is another entity
    assert found == pytest.approx(
        {"entity_f1": 0, "entity_precision": 0, "entity_recall": 0, "tag_accuracy": 3 / 5}
    )
    assert score_tags(right, right, read=[2])["entity_recall"] == 0.5
    assert score_tags(right * 2, right * 2, read=[2, 4], scores=("unread_words",)) == {
        "unread_words": 4
    }
    plain = score_tags([["A", "B"]], [["A", "B"]], [1], ("A", "B"), "plain", ("tag_accuracy",))
    assert plain == {"tag_accuracy": 0.5}


def draw_tags(seed, count=300):
    rng = np.random.default_rng(seed)
    return [[NAMES[i] for i in rng.integers(0, len(NAMES), 3 + n % 5)] for n in range(count)]


def add_noise(sentences, seed=3):
    rng = np.random.default_rng(seed)
    return [
        [NAMES[rng.integers(0, len(NAMES))] if rng.random() < 0.3 else tag for tag in sentence]
        for sentence in sentences
    ]


def test_scores_are_those_of_seqeval():
    right = draw_tags(1)
    found = score_tags(right, add_noise(right))
    assert found == pytest.approx(GOLDEN)


# f1_score, precision_score, recall_score and accuracy_score of seqeval 1.2.2 for the same tags.
GOLDEN = {
    "entity_f1": 0.6869089099054255,
    "entity_precision": 0.6893106893106893,
    "entity_recall": 0.6845238095238095,
    "tag_accuracy": 0.744,
}


def test_a_metric_is_of_its_objective():
    with pytest.raises(
        ConfigError,
        match="entity_f1 is a metric of tagging and generated tags; the metrics of classification are accuracy",
    ):
        check_metrics(("entity_f1",), "classification")
    with pytest.raises(
        ConfigError,
        match="accuracy is a metric of classification and multiple_choice; the metrics of tagging are entity_f1",
    ):
        check_metrics(("accuracy",), "tagging", 5)
    check_metrics(("accuracy",), "multiple_choice")
