"""Metrics equal the libraries' over the rows with weight, and unknown ones are refused
before anything is computed.
"""

import importlib.util
import math
import re

import numpy as np
import pytest

from pretrain.evaluation import task_metrics
from pretrain.evaluation.task_metrics import check_metrics, compute_metrics
from pretrain.host.extras import how_to_install
from pretrain.settings.overrides import ConfigError

NEEDS_SKLEARN = pytest.mark.skipif(
    importlib.util.find_spec("sklearn") is None, reason="scikit-learn is of the extra `metrics`"
)


def make_predictions(predicted, right):
    """Return predictions in the form of `Loss.row_predictions`, with a row at the end that only
    pads a batch.
    """
    return np.array([*([p, r, 1] for p, r in zip(predicted, right)), (1, 0, 0)], np.float32)


RIGHT, PREDICTED = (
    [1, 1, 1, 0, 0, 0, 0, 1],
    [1, 1, 0, 0, 0, 1, 0, 1],
)  # 3 of 4 ones are found, 3 of 4 predicted ones are right


@NEEDS_SKLEARN
def test_of_classes():
    tp, tn, fp, fn = 3, 3, 1, 1
    matthews = (tp * tn - fp * fn) / np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    found = compute_metrics(
        ("accuracy", "f1", "matthews", "macro_f1"), make_predictions(PREDICTED, RIGHT)
    )
    assert found == pytest.approx(
        {"accuracy": 6 / 8, "f1": 6 / 8, "matthews": matthews, "macro_f1": 6 / 8}
    )
    skewed = compute_metrics(
        ("f1", "macro_f1"), make_predictions([1, 1, 1, 1], [1, 1, 1, 0])
    )  # f1 is of the second class
    assert skewed == pytest.approx({"f1": 6 / 7, "macro_f1": 3 / 7})
    assert compute_metrics(("matthews", "f1"), make_predictions([0, 0, 0], [1, 0, 1])) == {
        "matthews": 0.0,
        "f1": 0.0,
    }


def test_of_scores():
    rng = np.random.default_rng(0)
    right = rng.integers(0, 6, 200).astype(np.float32)
    predicted = (np.exp(right) + rng.normal(0, 5, 200)).astype(np.float32)

    def rank_values(values):  # the mean rank of ties
        return np.array(
            [(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values]
        )

    found = compute_metrics(("pearson", "spearman"), make_predictions(predicted, right))
    assert found["pearson"] == pytest.approx(np.corrcoef(predicted, right)[0, 1])
    assert found["spearman"] == pytest.approx(
        np.corrcoef(rank_values(predicted), rank_values(right))[0, 1]
    )
    assert compute_metrics(
        ("pearson", "spearman"), make_predictions([2.0, 2.0, 2.0], [1, 2, 3])
    ) == {
        "pearson": 0.0,
        "spearman": 0.0,
    }


def test_invalid_metrics_are_refused(monkeypatch):
    with pytest.raises(
        ConfigError,
        match="pearson is a metric of regression and similarity; the metrics of classification are accuracy, f1, macro_f1, matthews",
    ):
        check_metrics(("accuracy", "pearson"), "classification")
    with pytest.raises(
        ConfigError,
        match="accuracy is a metric of classification and multiple_choice; the metrics of masked_lm are none",
    ):
        check_metrics(("accuracy",), "masked_lm")
    with pytest.raises(ConfigError, match="f1 needs two classes, there are 3; use macro_f1"):
        check_metrics(("f1",), "classification", 3)
    monkeypatch.setattr(
        task_metrics.importlib.util, "find_spec", lambda name: None if name == "sklearn" else name
    )
    with pytest.raises(
        ConfigError, match=re.escape(f"matthews needs sklearn: {how_to_install('metrics')}")
    ):
        check_metrics(("accuracy", "matthews"), "classification")
    check_metrics(("pearson",), "regression")


def test_bleu_gives_no_advice_that_cannot_be_followed(caplog):
    """sacreBLEU names its parameter `force` where many texts end in a blank and a full stop."""
    sacrebleu = pytest.importorskip("sacrebleu")
    texts = ["the old fox runs ."] * 200
    right = [*texts[1:], "the old dog runs ."]
    score = task_metrics.METRICS["bleu"].compute_score(texts, right)
    assert not caplog.records
    assert score == {"bleu": sacrebleu.corpus_bleu(texts, [right]).score}


@pytest.mark.parametrize(
    ("tokenizer", "written", "reference", "characters"),
    [
        ("zh", "孩子们在河边放风筝。", "孩子们在湖边放风筝。", True),
        ("char", "こどもたちはかわであそぶ", "こどもたちはうみであそぶ", True),
        ("char", "아이들이 강가에서 논다", "아이들이 바다에서 논다", True),
        ("13a", "the children play at the river", "the children play at the lake", False),
    ],
)
def test_bleu_follows_the_script(tokenizer, written, reference, characters):
    """By hand: matches of n-grams over their number, the geometric mean of n = 1 to 4; equal
    lengths have no penalty.
    """
    pytest.importorskip("sacrebleu")
    scores = task_metrics.score_written_texts(["bleu"], [written], [reference])
    a, b = (list(text.replace(" ", "")) if characters else text.split() for text in (written, reference))  # fmt: skip
    precisions = []
    for n in range(1, 5):
        ngrams, others = ([tuple(x[i : i + n]) for i in range(len(x) - n + 1)] for x in (a, b))
        precisions.append(sum(min(ngrams.count(g), others.count(g)) for g in set(ngrams)) / len(ngrams))  # fmt: skip
    assert scores["bleu"] == pytest.approx(100 * math.prod(precisions) ** 0.25)
    assert scores.get(f"bleu_{tokenizer}", scores["bleu"]) == scores["bleu"]
    assert list(scores)[1:] == ([] if tokenizer == "13a" else [f"bleu_{tokenizer}"])
    assert task_metrics.score_written_texts([f"bleu_{tokenizer}"], [written], [reference]) == {
        f"bleu_{tokenizer}": scores["bleu"]
    }
