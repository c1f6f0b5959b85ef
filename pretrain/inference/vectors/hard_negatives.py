"""Hard negatives: the texts nearest to a query that do not belong to it.

Xiong et al. (2021), ANCE, by the model's own vectors; Moreira et al. (2024), NV-Retriever, with a
limit that follows the positive's similarity.

Q queries   D width
"""

from collections.abc import Sequence

import numpy as np

from pretrain.inference.vectors.nearest import find_nearest

ROOM, GROWTH = 100, 8  # more candidates than negatives, and the factor where they are too few


def mine_negatives(
    queries: Sequence[str],
    positives: Sequence[str],
    query_QD: np.ndarray,
    positive_QD: np.ndarray,
    *,
    count: int = 1,
    skip: int = 0,
    margin: float = 1.0,
) -> list[list[str]]:
    """Return up to `count` negatives of each query, the nearest first.

    They are positives of other queries. A text that is the query itself, or a positive of a query
    with the same text, is none.

    Args:
      query_QD, positive_QD: their vectors, of length 1.
      skip: nearest texts that are left out.
      margin: the largest similarity, over that of the query and its positive.
    """
    place_of: dict[str, int] = {}
    for place, text in enumerate(positives):
        place_of.setdefault(text, place)
    unique = list(place_of)
    own: dict[str, set[str]] = {}
    for query, positive in zip(queries, positives, strict=True):
        own.setdefault(query, {query}).add(positive)
    unique_ND = positive_QD[list(place_of.values())]
    limit_Q = margin * (query_QD * positive_QD).sum(axis=1)
    found: list[list[str]] = [[] for _ in queries]
    pending = list(range(len(queries)))
    most = count + skip + ROOM + max(map(len, own.values()), default=0)
    while pending:
        scores_qK, index_qK = find_nearest(query_QD[pending], unique_ND, most)
        for q, scores_K, index_K in zip(pending, scores_qK.tolist(), index_qK.tolist()):
            named = zip(scores_K, (unique[i] for i in index_K))
            others = [(score, text) for score, text in named if text not in own[queries[q]]]
            found[q] = [text for score, text in others[skip:] if score <= limit_Q[q]][:count]
        # Where so many are copies or too near, more are looked at, and all of them in the end.
        pending = [q for q in pending if len(found[q]) < count] if most < len(unique) else []
        most *= GROWTH
    return found
