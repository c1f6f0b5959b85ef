"""Spans of a context as answers: the best span of each question, and how good its text is.

Exact match and F1 follow SQuAD's evaluation scripts (Rajpurkar et al. 2016, section 6.1;
2018), as shares of 1 rather than of 100.

B batch   L row length   M maximal tokens of a span   Q questions   N rows   T tokens
"""

from __future__ import annotations

import collections
import re
import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

LONGEST = 30  # M, as in BERT's code and run_qa of transformers
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))


# ---- the best span of each question ------------------------------------------


class BestSpans(NamedTuple):
    """The best span of each question.

    Attributes:
      begins: int64 [Q], first token of the span in its context.
      ends: int64 [Q], last token of the span.
      scores: float64 [Q], sum of the span's two logits.
      probabilities: float64 [Q], probability of the span in its row.
      null_scores: float64 [Q], lowest score of [CLS] over the question's rows, as in BERT's code.
      null_probabilities: float64 [Q], probability of [CLS] in that row.
    """

    begins: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray
    null_scores: np.ndarray
    null_probabilities: np.ndarray

    @property
    def null_score_diffs(self) -> np.ndarray:
        """The score of "no answer" minus the best span's, float64 [Q]."""
        return self.null_scores - self.scores


def select_best_spans(rows_NK: np.ndarray, count: int) -> BestSpans:
    """Return the best span of each question over all its windows.

    Args:
      rows_NK: the rows of `answer_span.predict_spans`, with all windows of all questions.
    """
    question_N, begin_N, end_N, score_N, null_N, total_N, _ = rows_NK.astype(np.float64).T
    question_N = question_N.astype(np.int64)
    best_Q, null_Q = (
        select_first_rows(question_N, -score_N, count),
        select_first_rows(question_N, null_N, count),
    )
    return BestSpans(
        begin_N[best_Q].astype(np.int64),
        end_N[best_Q].astype(np.int64),
        score_N[best_Q],
        np.exp(score_N[best_Q] - total_N[best_Q]),
        null_N[null_Q],
        np.exp(null_N[null_Q] - total_N[null_Q]),
    )


def select_first_rows(question_N: np.ndarray, key_N: np.ndarray, count: int) -> np.ndarray:
    """Return the row with the lowest key of each question, the first of equal ones: int64 [Q]."""
    order = np.lexsort((np.arange(len(key_N)), key_N, question_N))
    found, first = np.unique(question_N[order], return_index=True)
    if not np.array_equal(found, np.arange(count)):
        raise ValueError(f"rows of {len(found):,} questions, expected {count:,}")
    return order[first]


def extract_answers(
    found: BestSpans, questions: Any, contexts: Sequence[str]
) -> list[tuple[str, int, int]]:
    """Return the text, the first character and the end of each question's best span.

    Args:
      questions: the encoded questions, see data/examples/qa_store.py.
    """
    first_Q = questions.spans_Q6[:, 2]
    begins, ends = (
        questions.begins_T[first_Q + found.begins],
        questions.ends_T[first_Q + found.ends],
    )
    return [(context[a:b], a, b) for context, a, b in zip(contexts, begins.tolist(), ends.tolist())]


# ---- the score of a text -----------------------------------------------------


def normalize_words(text: str) -> list[str]:
    """Return the normalized words: lower case, without ASCII punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def compute_exact(predicted: str, right: str) -> float:
    """Return 1.0 if two answers have the same words, else 0.0."""
    return float(normalize_words(predicted) == normalize_words(right))


def compute_f1(predicted: str, right: str) -> float:
    """Return the F1 of the words of two answers, counted with repetitions; 0 if they share none."""
    predicted_words, right_words = normalize_words(predicted), normalize_words(right)
    common = sum((collections.Counter(predicted_words) & collections.Counter(right_words)).values())
    return 2 * common / (len(predicted_words) + len(right_words)) if common else 0.0


def compute_squad2_f1(predicted: str, right: str) -> float:
    """Return F1 as SQuAD 2.0's script: an answer without words matches only another one."""
    if not normalize_words(predicted) or not normalize_words(right):
        return compute_exact(predicted, right)
    return compute_f1(predicted, right)


def score_answers(
    predicted: Sequence[str], answers: Sequence[Sequence[str]], unanswerable: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return exact match and F1 of each prediction with the best of its reference answers.

    Args:
      answers: the reference answers of each question; none means that "" is correct.

    Returns:
      Two arrays, float64 [Q].
    """
    f1 = compute_squad2_f1 if unanswerable else compute_f1
    scores = []
    for text, right in zip(predicted, answers, strict=True):
        if unanswerable:  # as its script, which ignores reference answers without words
            right = [answer for answer in right if normalize_words(answer)] or [""]
        scores.append(
            [max(score(text, answer) for answer in right) for score in (compute_exact, f1)]
        )
    exact_Q, f1_Q = np.array(scores, np.float64).reshape(-1, 2).T
    return exact_Q, f1_Q


def find_best_threshold(
    doubts_Q: np.ndarray, answered_Q: np.ndarray, silent_Q: np.ndarray
) -> float:
    """Return the threshold of `null_threshold` with the best sum of scores.

    It is the middle between the two neighbours of the best cut; if all or no questions are best
    answered, it is 1 beyond the last. Of equal cuts the lowest is taken, as in the official script.

    Args:
      doubts_Q: score of "no answer" minus the best span's; above the threshold there is no
        answer.
      answered_Q: the score of each question if it is answered.
      silent_Q: the score of each question if it is not answered.
    """
    order = np.argsort(doubts_Q, kind="stable")
    doubts = doubts_Q[order]
    # Gain of answering the first n questions, and whether a cut there separates unequal doubts.
    gained = np.concatenate([[0.0], np.cumsum((answered_Q - silent_Q)[order])])
    possible = np.concatenate([[True], np.diff(doubts) > 0, [True]])
    cut = int(np.argmax(np.where(possible, np.round(gained, 9), -np.inf)))
    low = doubts[cut - 1] if cut else doubts[0] - 2
    return float((low + (doubts[cut] if cut < len(doubts) else low + 2)) / 2)


def average_by_answerability(
    exact_Q: np.ndarray, f1_Q: np.ndarray, answers: Sequence[Sequence[str]], unanswerable: bool
) -> dict[str, float]:
    """Return mean exact match and F1, of all questions and by whether they have an answer.

    The means by kind are the official script's HasAns and NoAns. They are omitted unless questions
    may have no answer, and for a kind without questions.
    """
    has_Q = np.array([bool(right) for right in answers])
    means = {"exact_match": exact_Q.mean(), "span_f1": f1_Q.mean()}
    if unanswerable:
        for name, mask_Q in (("has_answer", has_Q), ("no_answer", ~has_Q)):
            if mask_Q.any():
                means |= {
                    f"{name}_exact": exact_Q[mask_Q].mean(),
                    f"{name}_f1": f1_Q[mask_Q].mean(),
                }
    return means


def compute_span_metrics(rows_NK: np.ndarray, config: Any, split: Any) -> dict[str, float]:
    """Return the scores of a split of a store, as pretrain/evaluation/task_metrics.py calls it.

    A model whose questions may have no answer also has `best_exact` and `best_f1`, each at its best
    threshold on this split. If its configuration names no threshold, the one with the best F1 on
    this split is used.

    Returns:
      The scores of `average_by_answerability`, and `null_threshold`.
    """
    from data.store.qa_reader import open_questions, read_question_texts

    contexts, answers = read_question_texts(split)
    found = select_best_spans(rows_NK, len(contexts))
    predicted = [text for text, *_ in extract_answers(found, open_questions(split), contexts)]
    exact_Q, f1_Q = score_answers(predicted, answers, config.unanswerable)
    if not config.unanswerable:
        return average_by_answerability(exact_Q, f1_Q, answers, False) | {
            "null_threshold": config.threshold or 0.0
        }
    silent_Q, _ = score_answers([""] * len(answers), answers, True)

    def apply_threshold(threshold: float, score_Q: np.ndarray) -> np.ndarray:
        return np.where(found.null_score_diffs > threshold, silent_Q, score_Q)

    best_exact, best_f1 = (
        find_best_threshold(found.null_score_diffs, of_Q, silent_Q) for of_Q in (exact_Q, f1_Q)
    )
    threshold = best_f1 if config.threshold is None else config.threshold
    return average_by_answerability(
        apply_threshold(threshold, exact_Q), apply_threshold(threshold, f1_Q), answers, True
    ) | {
        "best_exact": apply_threshold(best_exact, exact_Q).mean(),
        "best_f1": apply_threshold(best_f1, f1_Q).mean(),
        "null_threshold": threshold,
    }
