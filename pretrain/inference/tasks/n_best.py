"""The most probable answers to a question, for `predict --n-best`.

L row length   C tokens of the context in a row   M maximal tokens of a span   N candidate spans
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pretrain.evaluation.qa_spans import LONGEST


class Candidate(NamedTuple):
    """A span of the context, or no answer.

    Attributes:
      answer: its text; "" for no answer.
      start: its first character; None for no answer.
      end: the character after its last; None for no answer.
      probability: its probability in its row.
    """

    answer: str
    start: int | None
    end: int | None
    score: float
    probability: float


def select_best(candidates: Iterable[Candidate], count: int) -> list[Candidate]:
    """Return the best `count` candidates with different texts, best first.

    Of equal texts the one with the best score is taken, of equal scores the first.
    """
    by_text: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        by_text.setdefault(candidate.answer, candidate)
    return list(by_text.values())[:count]


def find_row_candidates(
    logits_L2: np.ndarray,
    context_start: int,
    num_context_tokens: int,
    log_normalizer: float,
    extract_text: Callable[[int, int], tuple[str, int, int]],
    count: int,
) -> list[Candidate]:
    """Return the best `count` candidates of a row with different texts, none of them empty.

    They include all candidates of this row that `select_best` selects.

    Args:
      logits_L2: the logits of the first and the last token.
      context_start: the first token of the context in the row.
      log_normalizer: the log of the normalizer of the probabilities (answer_span.predict_spans).
      extract_text: a function (first, last token of the span) -> (text, first character, end).
    """
    begin_C, end_C = logits_L2[context_start : context_start + num_context_tokens].T
    ends_CM = np.lib.stride_tricks.sliding_window_view(
        np.pad(end_C, (0, LONGEST - 1), constant_values=-np.inf), LONGEST
    )
    scores_N = (begin_C[:, None] + ends_CM).ravel()
    by_text: dict[str, Candidate] = {}
    for index in np.argsort(-scores_N, kind="stable"):
        if len(by_text) == count or scores_N[index] == -np.inf:
            break
        first, extra = divmod(int(index), LONGEST)
        score = float(scores_N[index])
        text, start, end = extract_text(first, first + extra)
        if not text:  # tokens of blanks are no answer
            continue
        by_text.setdefault(
            text, Candidate(text, start, end, score, float(np.exp(score - log_normalizer)))
        )
    return list(by_text.values())


def insert_no_answer(
    candidates: Sequence[Candidate],
    null_score: float,
    probability: float,
    threshold: float,
    count: int,
) -> list[Candidate]:
    """Return the best `count` of the candidates and "no answer".

    "No answer" precedes the first candidate whose score it exceeds by more than the threshold.
    """
    index = next(
        (i for i, candidate in enumerate(candidates) if null_score - candidate.score > threshold),
        len(candidates),
    )
    no_answer = Candidate("", None, None, null_score, probability)
    return [*candidates[:index], no_answer, *candidates[index:]][:count]
