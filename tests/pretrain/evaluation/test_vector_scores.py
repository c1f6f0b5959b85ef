"""Scores of frozen vectors are MTEB's on the same vectors."""

import collections

import numpy as np
import pytest

from pretrain.evaluation.vector_scores import draw_samples, score_classes

pytest.importorskip("sklearn", reason="the extra `metrics` is not installed")


def draw_vectors(count, seed):
    """Return vectors of three classes of different sizes, which overlap."""
    rng = np.random.default_rng(seed)
    numbers = rng.choice(3, count, p=[0.6, 0.3, 0.1])
    labels = [("no", "maybe", "yes")[i] for i in numbers.tolist()]
    return rng.normal(size=(count, 5)) + numbers[:, None] * 0.7, labels


def test_draws_are_those_of_mteb():
    """Each experiment shuffles the list of the one before, and takes the first of each label."""
    _, labels = draw_vectors(200, 1)
    indices = list(range(len(labels)))
    for chosen in draw_samples(labels, 8):
        np.random.RandomState(42).shuffle(indices)
        counter, expected = collections.Counter(), []
        for i in indices:
            if counter[labels[i]] < 8:
                expected.append(i)
                counter[labels[i]] += 1
        assert chosen.tolist() == expected


def test_a_class_with_few_texts_gives_all_of_them():
    draws = draw_samples(["a"] * 20 + ["b"] * 3, 8)
    assert len(draws) == 10 and all(len(chosen) == 11 for chosen in draws)
    assert all(set(range(20, 23)) < set(chosen.tolist()) for chosen in draws)


def test_accuracy_is_the_mean_over_the_draws():
    from sklearn.linear_model import LogisticRegression

    (train_ND, train), (test_ND, test) = draw_vectors(200, 1), draw_vectors(100, 2)
    accuracies = []
    for chosen in draw_samples(train, 8):
        model = LogisticRegression(max_iter=100).fit(train_ND[chosen], np.array(train)[chosen])
        accuracies.append((model.predict(test_ND) == np.array(test)).mean())
    found = score_classes(train_ND, train, test_ND, test, samples=8)
    assert found["accuracy"] == pytest.approx(np.mean(accuracies))
    whole = LogisticRegression(max_iter=100).fit(train_ND, train)
    found = score_classes(train_ND, train, test_ND, test)
    assert found["accuracy"] == pytest.approx((whole.predict(test_ND) == np.array(test)).mean())
    assert 0.4 < found["macro_f1"] < found["accuracy"] < 1
