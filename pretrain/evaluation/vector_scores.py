"""How much frozen vectors of texts know: similarity, classes and clusters, as MTEB measures them.

Muennighoff et al. (2023). The classifier and the clusters are scikit-learn's.

N texts   D width
"""

# scikit-learn and SciPy are optional.
# pyright: reportMissingImports=false

from collections.abc import Sequence
from typing import Any

import numpy as np

SEED, ITERATIONS, DRAWS = 42, 100, 10  # of MTEB
CLUSTERED_AT_ONCE = 512


def score_similarity(cosines_N: np.ndarray, scores_N: np.ndarray) -> dict[str, float]:
    """Return the Spearman and Pearson correlations of cosines with scores."""
    from scipy import stats

    correlations: dict[str, Any] = {
        "spearman": stats.spearmanr(cosines_N, scores_N),
        "pearson": stats.pearsonr(cosines_N, scores_N),
    }
    return {name: float(found.statistic) for name, found in correlations.items()}


def score_classes(
    train_ND: np.ndarray,
    train: Sequence[str],
    test_ND: np.ndarray,
    test: Sequence[str],
    samples: int | None = None,
) -> dict[str, float]:
    """Return accuracy and macro F1 of a logistic regression on vectors.

    Args:
      train, test: the class of each vector.
      samples: the vectors of each class that are trained on, as the mean over MTEB's draws; None:
        all of them, once.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score

    draws = [np.arange(len(train))] if samples is None else draw_samples(train, samples)
    scores = []
    for chosen in draws:
        classifier = LogisticRegression(max_iter=ITERATIONS, random_state=SEED)
        classifier.fit(train_ND[chosen], np.asarray(train)[chosen])
        predicted = classifier.predict(test_ND)
        f1 = f1_score(test, predicted, average="macro")
        scores.append((accuracy_score(test, predicted), f1))
    accuracy, macro_f1 = np.mean(scores, axis=0).tolist()
    return {"accuracy": accuracy, "macro_f1": macro_f1}


def draw_samples(labels: Sequence[str], samples: int) -> list[np.ndarray]:
    """Return the numbers of the vectors of each draw, the first `samples` of each class.

    As in MTEB, each draw shuffles the order of the one before by the same seed.
    """
    order, draws = np.arange(len(labels)), []
    for _ in range(DRAWS):
        np.random.RandomState(SEED).shuffle(order)
        counts, chosen = dict.fromkeys(labels, 0), []
        for i in order.tolist():
            counts[labels[i]] += 1
            if counts[labels[i]] <= samples:
                chosen.append(i)
        draws.append(np.array(chosen))
    return draws


def score_clusters(vectors_ND: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """Return the V-measure of as many clusters of vectors as there are labels."""
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import v_measure_score

    clusters = MiniBatchKMeans(
        n_clusters=len(set(labels)),
        batch_size=CLUSTERED_AT_ONCE,
        random_state=SEED,
        n_init="auto",
    )
    return {"v_measure": float(v_measure_score(labels, clusters.fit_predict(vectors_ND)))}
