"""Evaluation on in-context tasks: `evaluate --task` (Brown et al. 2020, section 2.4).

It measures how often a model finds the right answer the likeliest, or would write it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from pretrain.inference.in_context_scorers import Score, ScoredRow, Scorer, make_scorer
from pretrain.inference.in_context_tasks import (
    ExamplePool,
    InContextQuestion,
    draw_examples,
    format_prompt,
)
from pretrain.workdir.trained import Trained


def evaluate_task(
    trained: Trained,
    mesh: Mesh,
    questions: Sequence[InContextQuestion],
    *,
    pool: Sequence[InContextQuestion],
    shots: int = 0,
    delimiter: str = "\n\n",
    answer_context: str | None = None,
    seed: int = 0,
    batch_size: int = 32,
    attention: list[str] | None = None,
) -> tuple[dict[str, int | float], list[dict[str, Any]]]:
    """Return ({name: number}, [{scores, tokens, chosen, right}] of each question).

    Choices are compared by log p, by log p per token, and, with `answer_context`, by log p minus
    log p after that context alone. An open question is right if each of its tokens is the
    likeliest; the perplexity covers whole answers.

    Args:
      pool: the questions from which examples are drawn.
      shots: the number of examples before a question, fewer if the row would be too long.
      attention: a list to which a line is appended for each attention kernel that is chosen.

    Raises:
      ValueError: a score is not a number.
    """
    scorer = make_scorer(trained, mesh, [] if attention is None else attention)
    rows, num_shortened, num_cut, examples = [], 0, 0, ExamplePool(pool)
    for number, question in enumerate(questions):
        question_rows, is_shortened, is_cut = _make_prompted_rows(
            scorer, question, draw_examples(number, question, examples, shots, seed), delimiter
        )
        rows.append(question_rows)
        num_shortened += is_shortened
        num_cut += is_cut
    scores = _score_rows(questions, rows, scorer, batch_size)
    prior = None
    if answer_context is not None and not questions[0].is_open:
        prior_rows = [scorer.make_rows(q.place, answer_context, q.choices)[0] for q in questions]
        prior = _score_rows(questions, prior_rows, scorer, batch_size)
    answers = [_make_answer(question, choices) for question, choices in zip(questions, scores)]
    numbers: dict[str, Any] = {
        "questions": len(questions),
        "shots": shots,
        **_summarize_answers(questions, answers, scores, prior),
        "fewer_examples": num_shortened,
        "cut": num_cut,
    }
    return {
        name: value if isinstance(value, int) else float(value) for name, value in numbers.items()
    }, answers


def _make_prompted_rows(
    scorer: Scorer, question: InContextQuestion, examples: list[InContextQuestion], delimiter: str
) -> tuple[list[ScoredRow], bool, bool]:
    """Return (rows of the choices, whether examples were dropped, whether the prompt was cut).

    Examples are dropped from the front until the rows fit into the model.
    """
    for start in range(len(examples) + 1):
        text = format_prompt(question, examples[start:], delimiter)
        rows, is_cut = scorer.make_rows(question.place, text, question.choices)
        if not is_cut:
            break
    return rows, start > 0, is_cut


def _summarize_answers(
    questions: Sequence[InContextQuestion],
    answers: Sequence[Mapping[str, Any]],
    scores: Sequence[Sequence[Score]],
    prior: Sequence[Sequence[Score]] | None,
) -> dict[str, Any]:
    """Return {name: number}: accuracies, their standard error, the perplexity of open questions."""
    numbers: dict[str, Any] = {}
    if questions[0].is_open:
        numbers["accuracy"] = np.mean([answer["right"] for answer in answers])
        mean_log_p = np.mean([answer["scores"][0] for answer in answers])
        numbers["perplexity"] = math.exp(min(-mean_log_p, 700.0))
    else:
        # {name: (scores of a question's choices, their prior scores) -> values to compare}
        rankings: dict[str, Callable[..., list[float]]] = {
            "accuracy": lambda choices, _: [p for p, _, _ in choices],
            "accuracy_per_token": lambda choices, _: [p / count for p, _, count in choices],
        }
        if prior:
            rankings["accuracy_over_prior"] = lambda choices, alone: [
                p - q for (p, _, _), (q, _, _) in zip(choices, alone)
            ]
        for name, rank in rankings.items():
            best = [
                int(np.argmax(rank(choices, alone)))
                for choices, alone in zip(scores, prior or scores)
            ]
            numbers[name] = np.mean([q.answer == choice for q, choice in zip(questions, best)])
        numbers["chance"] = np.mean([1 / len(question.choices) for question in questions])
    numbers["standard_error"] = math.sqrt(
        numbers["accuracy"] * (1 - numbers["accuracy"]) / len(questions)
    )
    return numbers


def _score_rows(
    questions: Sequence[InContextQuestion],
    rows: Sequence[Sequence[ScoredRow]],
    scorer: Scorer,
    batch_size: int,
) -> list[list[Score]]:
    """Return the scores of rows [question][choice], as lists of the same form.

    Raises ValueError, which names the question, where one is not a number: none is the largest.
    """
    flat: Iterator[Score] = iter(
        scorer([row for question_rows in rows for row in question_rows], batch_size)
    )
    scores = [[next(flat) for _ in question_rows] for question_rows in rows]
    for question, choices in zip(questions, scores, strict=True):
        if any(math.isnan(log_p) for log_p, _, _ in choices):
            raise ValueError(
                f"{question.place}: a score is not a number, since the parameters or what is "
                "computed from them are not finite; use another --step, or --dtype float32"
            )
    return scores


def _make_answer(question: InContextQuestion, choices: Sequence[Score]) -> dict[str, Any]:
    """Return the JSON value of the answer to a question."""
    scores, tokens = [p for p, _, _ in choices], [count for _, _, count in choices]
    if question.is_open:
        return {"scores": scores, "tokens": tokens, "right": choices[0][1]}
    best = int(np.argmax(scores))
    return {"scores": scores, "tokens": tokens, "chosen": best, "right": best == question.answer}
