"""How much frozen vectors of texts know: similarity, classes and clusters, as MTEB measures them.

Muennighoff et al. (2023). The classifier and the clusters are scikit-learn's.

N texts   D width
"""

# scikit-learn and SciPy are optional.
# pyright: reportMissingImports=false

from collections.abc import Sequence
from typing import Any

import numpy as np

SEED, ITERATIONS = 42, 100  # of MTEB
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
    train_ND: np.ndarray, train: Sequence[str], test_ND: np.ndarray, test: Sequence[str]
) -> dict[str, float]:
    """Return accuracy and macro F1 of a logistic regression on vectors.

    train, test: the class of each vector.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, f1_score

    classifier = LogisticRegression(max_iter=ITERATIONS, random_state=SEED)
    predicted = classifier.fit(train_ND, train).predict(test_ND)
    return {
        "accuracy": float(accuracy_score(test, predicted)),
        "macro_f1": float(f1_score(test, predicted, average="macro")),
    }


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
