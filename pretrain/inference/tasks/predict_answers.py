"""Answers to questions by a fine-tuned model: the best span of a context of any length.

Rows are batched by length, so that few shapes are compiled and little padding is computed.

B batch   L row length   Q questions
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from data.examples.labelled_examples import parse_text
from data.examples.qa import Question
from data.examples.qa_store import encode_questions
from data.examples.records import read_texts
from data.rows.qa_windows import make_window_rows
from models import build
from pretrain.evaluation import qa_spans
from pretrain.inference.batching import make_batches, name_places, pad_length, round_up_to_power
from pretrain.inference.tasks import n_best
from pretrain.kernels.model_hooks import make_local_hooks
from pretrain.training.losses.answer_span import predict_spans

if TYPE_CHECKING:
    from pretrain.config import Run
    from pretrain.workdir.trained import Trained

COLUMNS = ("question", "context")
NUMBERS = ("start", "end", "score", "probability", "null_score")
BLANK = {"answer": "", **dict.fromkeys(NUMBERS)}  # the result of a blank line


def make_reader(trained: Trained) -> Callable[[dict[str, Any], str | None], tuple[str, ...]]:
    """Return a function (record, place) that returns the question and the context of a record.

    The place is None on the command line.
    """
    return lambda record, place: read_texts(record, place or "the command line", COLUMNS)


def format_answer(texts: Sequence[str], result: dict[str, Any]) -> str:
    """Return a question, its context and its answers, formatted for the terminal."""
    answers = (
        f"    {answer['probability']:7.2%}  {answer['answer'] or '(no answer)'}"
        for answer in result.get("n_best", [result])
    )
    return "\n".join([*texts, *answers])


class AnswerPredictor:
    """Predicts answers to pairs (question, context).

    A result is {"answer", "start", "end", "score", "probability", "null_score"}:

    start, end   characters of the context; None for no answer, whose `answer` is ""
    score        sum of the span's two logits
    null_score   score of "no answer"
    probability  probability of the first token times the last token's, in the row of the span; for
                 no answer, the probability of no answer

    With `n_best`, `n_best` is a list of that many answers with the first five of these keys, best
    first, where "no answer" has null_score as its score. A question that is longer than
    `objective.question` tokens is truncated as in training, and its result has "cut": true.
    """

    def __init__(self, trained: Trained, batch_size: int, n_best: int = 0) -> None:
        self.config: Any = resolve_threshold(trained).model
        self.objective: Any = trained.run.data.objective
        self.model = build(trained.run.model, **make_local_hooks())
        self.params, self.vocabulary = trained.params, trained.vocabulary
        self.batch_size, self.n_best = batch_size, n_best

    def __call__(
        self, texts: Sequence[tuple[str, str]], places: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        """Return the result of each pair; `places` name them in errors (None: their number)."""
        questions = []
        for (question, context), place in zip(texts, name_places(places)):
            parse_text(context, f"{place}: column 'context'")
            question = parse_text(question, f"{place}: column 'question'")
            questions.append(Question("", question, context, (), place))
        encoded = encode_questions(self.vocabulary, questions)
        contexts = [question.context for question in questions]
        rows, candidates = [], [[] for _ in questions]
        for batch, rows_B7, logits_BL2 in self._score_windows(encoded):
            rows.append(rows_B7)
            if self.n_best:
                self._collect_candidates(candidates, batch, rows_B7, logits_BL2, encoded, contexts)
        found = qa_spans.select_best_spans(np.concatenate(rows), len(questions))
        spans = qa_spans.extract_answers(found, encoded, contexts)
        silent_Q = self.config.unanswerable & (found.null_score_diffs > self.null_threshold)
        begin_Q, end_Q = encoded.spans_Q6[:, :2].T
        cut_Q = end_Q - begin_Q > self.objective.question
        if num_cut := int(cut_Q.sum()):
            print(
                f"{num_cut:,} of {len(questions):,} questions are longer than "
                f"{self.objective.question} tokens and were truncated",
                file=sys.stderr,
            )
        return [
            self._make_result(i, spans[i], found, silent_Q[i], candidates[i])
            | ({"cut": True} if cut_Q[i] else {})
            for i in range(len(questions))
        ]

    @property
    def null_threshold(self) -> float:
        """The difference of scores above which "no answer" is predicted."""
        return self.config.threshold or 0.0

    def _score_windows(
        self, encoded: Any
    ) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]]:
        """Yield batches of rows of similar lengths.

        Yields:
          The batch; the rows of `answer_span.predict_spans`, [B, 7]; and the logits, [B, L, 2].
        """
        table, rows = make_window_rows(self.objective, encoded, self.vocabulary)
        lengths = [
            min(pad_length(length), self.objective.length)
            for length in (table.context_position_R + table.context_length_R + 1).tolist()
        ]
        for indices in make_batches(lengths, self.batch_size):
            count, length = len(indices), lengths[indices[0]]
            # The batch is filled up with its first row.
            batch = rows(np.array(indices + indices[:1] * (round_up_to_power(count) - count)))
            batch = {
                key: array[:, :length] if array.ndim == 2 else array for key, array in batch.items()
            }
            weighted = batch | {"label_weights": np.ones(round_up_to_power(count), np.float32)}
            rows_B7, logits_BL2 = jax.device_get(_predict_spans(self.model, self.params, weighted))
            yield batch, rows_B7[:count], logits_BL2[:count]

    def _collect_candidates(
        self,
        candidates: list[list[n_best.Candidate]],
        batch: dict[str, np.ndarray],
        rows_B7: np.ndarray,
        logits_BL2: np.ndarray,
        encoded: Any,
        contexts: Sequence[str],
    ) -> None:
        """Add the best candidates of each row of a batch to its question's candidates."""
        for row, (row_7, logits_L2) in enumerate(zip(rows_B7, logits_BL2)):
            question, context, skipped = (
                int(batch[key][row])
                for key in ("question_ids", "context_starts", "context_offsets")
            )
            text, offset = contexts[question], int(encoded.spans_Q6[question, 2]) + skipped

            def extract_text(
                first: int, last: int, text: str = text, offset: int = offset
            ) -> tuple[str, int, int]:
                start = int(encoded.begins_T[offset + first])
                end = int(encoded.ends_T[offset + last])
                return text[start:end], start, end

            length = int((batch["token_type_ids"][row] == 1).sum()) - 1  # without its [SEP]
            candidates[question] += n_best.find_row_candidates(
                logits_L2, context, length, float(row_7[5]), extract_text, self.n_best
            )

    def _make_result(
        self,
        i: int,
        span: tuple[str, int, int],
        found: qa_spans.BestSpans,
        silent: bool,
        candidates: list[n_best.Candidate],
    ) -> dict[str, Any]:
        """Return the result of question `i`.

        Args:
          span: text, first character and end of its best span.
        """
        text, start, end = ("", None, None) if silent else span
        result = {
            "answer": text,
            "start": start,
            "end": end,
            "score": float(found.scores[i]),
            "probability": float((found.null_probabilities if silent else found.probabilities)[i]),
            "null_score": float(found.null_scores[i]),
        }
        if not self.n_best:
            return result
        answers = n_best.select_best(candidates, self.n_best)
        if self.config.unanswerable:
            answers = n_best.insert_no_answer(
                answers,
                result["null_score"],
                float(found.null_probabilities[i]),
                self.null_threshold,
                self.n_best,
            )
        return result | {"n_best": [answer._asdict() for answer in answers]}


@partial(jax.jit, static_argnames="model")
def _predict_spans(
    model: Any, params: Any, batch: dict[str, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Return the rows of `answer_span.predict_spans`, [B, 7], and the logits, [B, L, 2]."""
    logits_BL2 = model.apply(
        {"params": params}, batch["token_ids"], batch["attention_mask"], batch["token_type_ids"]
    )
    return predict_spans(logits_BL2, batch), logits_BL2


def resolve_threshold(trained: Trained) -> Run:
    """Return the run of a checkpoint with the threshold of its model.

    If the configuration names none, it is the one that was best on the held-out split.
    """
    from models.config.span_reader import SpanReaderConfig
    from pretrain.workdir.checkpoints import Checkpoints

    run = trained.run
    if (
        not isinstance(run.model, SpanReaderConfig)
        or not run.model.unanswerable
        or run.model.threshold is not None
    ):
        return run
    with Checkpoints(trained.workdir, read_only=True) as checkpoints:
        threshold = checkpoints.load_scores(trained.step).get("null_threshold")
    return dataclasses.replace(run, model=dataclasses.replace(run.model, threshold=threshold))
