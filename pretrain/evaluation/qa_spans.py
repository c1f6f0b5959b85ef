"""Spans of a context as answers: what is learned of two scores a token, which span is chosen, and how right its text is.

Exact match and F1 are those of SQuAD's own scripts (Rajpurkar et al. 2016, section 6.1; 2018), as shares of 1 rather than of 100.

B batch   L row length   M tokens of a span, at most   Q questions   N rows
"""

import collections
import re
import string
from typing import NamedTuple

import numpy as np

LONGEST = 30  # M: tokens of an answer, as BERT's own code and run_qa of transformers have it
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))


# ---- the best span of each question ------------------------------------------


class Chosen(NamedTuple):
    """Of each question: the tokens [begin, end] of its context, the logit of that span (the sum of two) and its probability in its row; the
    least logit of [CLS] over the rows, as BERT's code takes it, and its probability there. float64 [Q] and int64 [Q].
    """

    begins: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray
    nulls: np.ndarray
    null_probabilities: np.ndarray

    @property
    def doubts(self):
        """By how much "no answer" scores above the best answer."""
        return self.nulls - self.scores


def chosen(rows_NK, count):
    """The best over all windows of each of `count` questions, of which `rows_NK` (answer_span.predict_spans) has every window."""
    question_N, begin_N, end_N, score_N, null_N, total_N, _ = rows_NK.astype(np.float64).T
    question_N = question_N.astype(np.int64)
    best_Q, null_Q = first_of(question_N, -score_N, count), first_of(question_N, null_N, count)
    return Chosen(
        begin_N[best_Q].astype(np.int64),
        end_N[best_Q].astype(np.int64),
        score_N[best_Q],
        np.exp(score_N[best_Q] - total_N[best_Q]),
        null_N[null_Q],
        np.exp(null_N[null_Q] - total_N[null_Q]),
    )


def first_of(question_N, key_N, count):
    """Of each question the row with the least key, of equals the first."""
    order = np.lexsort((np.arange(len(key_N)), key_N, question_N))
    found, first = np.unique(question_N[order], return_index=True)
    if not np.array_equal(found, np.arange(count)):
        raise ValueError(f"rows of {len(found):,} questions, where there are {count:,}")
    return order[first]


def spelt(found, questions, contexts):
    """(text, first character, character behind the last) of each question's best span; questions: of data/examples/qa_store.py."""
    first_Q = questions.spans_Q6[:, 2]
    begins, ends = (
        questions.begins_T[first_Q + found.begins],
        questions.ends_T[first_Q + found.ends],
    )
    return [(context[a:b], a, b) for context, a, b in zip(contexts, begins.tolist(), ends.tolist())]


# ---- how right a text is -----------------------------------------------------


def words(text):
    """The words of an answer as they are compared: lower case, without punctuation (of ASCII) and without articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact(predicted, right):
    """1.0 where two answers have the same words."""
    return float(words(predicted) == words(right))


def overlap(predicted, right):
    """F1 of the words of two answers, each as often as it stands there; 0 where they share none."""
    predicted, right = words(predicted), words(right)
    common = sum((collections.Counter(predicted) & collections.Counter(right)).values())
    return 2 * common / (len(predicted) + len(right)) if common else 0.0


def overlap_or_none(predicted, right):
    """The same as SQuAD 2.0's script has it: where one is nothing, only nothing is right."""
    if not words(predicted) or not words(right):
        return exact(predicted, right)
    return overlap(predicted, right)


def judged_texts(predicted, answers, unanswerable):
    """(exact match, F1) of each prediction with the best of its right answers: float64 [Q] each. No answers: "" is right."""
    f1 = overlap_or_none if unanswerable else overlap
    scores = []
    for text, right in zip(predicted, answers, strict=True):
        if unanswerable:  # as its script, which does not know an answer without words
            right = [one for one in right if words(one)] or [""]
        scores.append([max(score(text, one) for one in right) for score in (exact, f1)])
    return tuple(np.array(scores, np.float64).reshape(-1, 2).T)


def best_threshold(doubts_Q, answered_Q, silent_Q):
    """The threshold of the doubt, above which nothing is answered, that gives the best sum of scores.

    answered_Q, silent_Q: what each question scores where it is answered, and where it is not. Of the doubts on both sides of the best
    cut it is the middle; where all, or none, are best answered, it lies 1 beyond the last. Of equals the lowest (as the official script).
    """
    order = np.argsort(doubts_Q, kind="stable")
    doubts = doubts_Q[order]
    gained = np.concatenate(
        [[0.0], np.cumsum((answered_Q - silent_Q)[order])]
    )  # where so many are answered
    possible = np.concatenate(
        [[True], np.diff(doubts) > 0, [True]]
    )  # equal doubts fall on one side
    cut = int(np.argmax(np.where(possible, np.round(gained, 9), -np.inf)))
    low = doubts[cut - 1] if cut else doubts[0] - 2
    return float((low + (doubts[cut] if cut < len(doubts) else low + 2)) / 2)


def by_kind(exact_Q, f1_Q, answers, unanswerable):
    """{"exact_match", "span_f1"}, and where some questions have no answer those of the questions that have one, and of the others.

    As the official script tells them as HasAns and NoAns; of which there are none, of these nothing is told.
    """
    has_Q = np.array([bool(right) for right in answers])
    found = {"exact_match": exact_Q.mean(), "span_f1": f1_Q.mean()}
    for name, of_Q in (("has_answer", has_Q), ("no_answer", ~has_Q)) if unanswerable else ():
        found |= (
            {f"{name}_exact": exact_Q[of_Q].mean(), f"{name}_f1": f1_Q[of_Q].mean()}
            if of_Q.any()
            else {}
        )
    return found


def scores(rows_NK, config, split):
    """What `by_kind` gives of a part of a store, and "null_threshold"; as pretrain/evaluation/task_metrics.py calls it.

    Of a model whose questions may have no answer, and whose configuration has no threshold, at the one that is best for F1 here. Of such also
    "best_exact" and "best_f1", each at the threshold that is best for it here.
    """
    from data.store.qa_reader import opened, opened_texts

    contexts, answers = opened_texts(split)
    found = chosen(rows_NK, len(contexts))
    predicted = [text for text, *_ in spelt(found, opened(split), contexts)]
    exact_Q, f1_Q = judged_texts(predicted, answers, config.unanswerable)
    if not config.unanswerable:
        return by_kind(exact_Q, f1_Q, answers, False) | {"null_threshold": config.threshold or 0.0}
    silent_Q, _ = judged_texts([""] * len(answers), answers, True)
    at = lambda threshold, of_Q: np.where(found.doubts > threshold, silent_Q, of_Q)  # noqa: E731
    best_exact, best_f1 = (best_threshold(found.doubts, of_Q, silent_Q) for of_Q in (exact_Q, f1_Q))
    threshold = best_f1 if config.threshold is None else config.threshold
    best = {"best_exact": at(best_exact, exact_Q).mean(), "best_f1": at(best_f1, f1_Q).mean()}
    return (
        by_kind(at(threshold, exact_Q), at(threshold, f1_Q), answers, True)
        | best
        | {"null_threshold": threshold}
    )
