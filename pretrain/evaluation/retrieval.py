"""The scores of a search: how high the relevant documents of a query stand in its ranking.

The definitions are those of trec_eval, which MTEB and BEIR (Thakur et al. 2021) report.
"""

import math
from collections.abc import Mapping, Sequence

NDCG_AT, RECALL_AT = 10, 100  # documents of a ranking that count


def compute_ndcg(ranking: Sequence[str], grades: Mapping[str, int], k: int = NDCG_AT) -> float:
    """Return nDCG@k of a query: its discounted grades over those of the best ranking.

    Järvelin and Kekäläinen (2002), with the grade itself as the gain.

    Args:
      ranking: documents, the best first.
      grades: {document: grade}, above 0 for a relevant one.
    """
    found = [max(grades.get(document, 0), 0) for document in ranking[:k]]
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)[:k]
    ideal = _discount(best)
    return _discount(found) / ideal if ideal else 0.0


def _discount(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 2) for rank, grade in enumerate(grades))


def compute_recall(ranking: Sequence[str], grades: Mapping[str, int], k: int = RECALL_AT) -> float:
    """Return the share of a query's relevant documents that are among the first k."""
    relevant = {document for document, grade in grades.items() if grade > 0}
    return len(relevant & set(ranking[:k])) / len(relevant) if relevant else 0.0


def compute_reciprocal_rank(
    ranking: Sequence[str], grades: Mapping[str, int], k: int = NDCG_AT
) -> float:
    """Return 1 over the rank of the first relevant document; 0 if it is not among the first k."""
    ranks = (rank for rank, document in enumerate(ranking[:k], 1) if grades.get(document, 0) > 0)
    return 1 / next(ranks, math.inf)


METRICS = {
    f"ndcg@{NDCG_AT}": compute_ndcg,
    f"recall@{RECALL_AT}": compute_recall,
    f"mrr@{NDCG_AT}": compute_reciprocal_rank,
}


def score_rankings(
    rankings: Mapping[str, Sequence[str]], judgements: Mapping[str, Mapping[str, int]]
) -> dict[str, float]:
    """Return {metric: its mean over the queries with a relevant document}.

    Args:
      rankings: {query: documents, the best first}.
      judgements: {query: {document: grade}}.

    Raises:
      ValueError: no query has a relevant document.
    """
    judged = [query for query, grades in judgements.items() if max(grades.values(), default=0) > 0]
    judged = [query for query in judged if query in rankings]
    if not judged:
        raise ValueError("no query of the search has a relevant document, so nothing is scored")
    return {
        name: sum(compute(rankings[query], judgements[query]) for query in judged) / len(judged)
        for name, compute in METRICS.items()
    }
