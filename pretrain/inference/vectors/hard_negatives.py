"""Hard negatives: the texts nearest to a query that do not belong to it.

Xiong et al. (2021), ANCE, by the model's own vectors; Moreira et al. (2024), NV-Retriever, with a
limit that follows the positive's similarity.

Q queries   D width
"""

from collections.abc import Sequence

import numpy as np

from pretrain.inference.vectors.nearest import find_nearest

ROOM = 100  # candidates in place of those that are copies or too near


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
    most = count + skip + ROOM + max(map(len, own.values()), default=0)
    scores_QK, index_QK = find_nearest(query_QD, positive_QD[list(place_of.values())], most)
    limit_Q = margin * (query_QD * positive_QD).sum(axis=1)
    found = []
    for query, limit, scores_K, index_K in zip(
        queries, limit_Q, scores_QK.tolist(), index_QK.tolist(), strict=True
    ):
        others = [
            (score, unique[i]) for score, i in zip(scores_K, index_K) if unique[i] not in own[query]
        ]
        near = [text for score, text in others[skip:] if score <= limit]
        found.append(near[:count])
    return found
