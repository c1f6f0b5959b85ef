"""The likeliest answers to a question, where `predict --n-best` asks for more than one.

L row length   C tokens of the row's part of the context   M tokens of a span, at most
"""

from typing import NamedTuple

import numpy as np

from pretrain.evaluation.qa_spans import LONGEST


class Candidate(NamedTuple):
    """A span of the context with the sum of its two logits and its probability in its row. answer "" without characters: no answer."""

    answer: str
    start: int | None
    end: int | None
    score: float
    probability: float


def best(candidates, count):
    """[Candidate]: of equal texts the one that scores best, and of these the best `count`, best first; of equal scores the first."""
    found = {}
    for one in sorted(candidates, key=lambda one: -one.score):
        found.setdefault(one.answer, one)
    return list(found.values())[:count]


def of_row(logits_L2, context, held, total, spelt, count):
    """The best `count` candidates of a row, whose texts differ: among them are all that `best` takes of this row.

    context, held: the part of the context is the row's tokens [context, context + held). total: the logarithm of what a probability is a share
    of (answer_span.predict_spans). spelt: (first, last token of the part) -> (text, its first character, the one behind its last).
    """
    begin_C, end_C = logits_L2[context : context + held].T
    ends_CM = np.lib.stride_tricks.sliding_window_view(
        np.pad(end_C, (0, LONGEST - 1), constant_values=-np.inf), LONGEST
    )
    scores_N = (begin_C[:, None] + ends_CM).ravel()
    found = {}
    for at in np.argsort(-scores_N, kind="stable"):
        if len(found) == count or scores_N[at] == -np.inf:
            break
        first, more = divmod(int(at), LONGEST)
        score = float(scores_N[at])
        text, start, end = spelt(first, first + more)
        found.setdefault(text, Candidate(text, start, end, score, float(np.exp(score - total))))
    return list(found.values())


def with_silence(candidates, null, probability, threshold, count):
    """The same with "no answer" where it belongs: before what it scores above by more than the threshold. null: its logit."""
    at = next(
        (i for i, one in enumerate(candidates) if null - one.score > threshold), len(candidates)
    )
    return [*candidates[:at], Candidate("", None, None, null, probability), *candidates[at:]][
        :count
    ]
