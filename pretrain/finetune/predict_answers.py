"""Answers to questions by a fine-tuned model, as `predict` tells them: the best span of a context, however long it is.

Rows are gathered by length, so that few shapes are compiled and little padding is computed.

B batch   L row length
"""

import sys
from functools import partial

import jax
import numpy as np

from data.examples.labelled import text_of
from data.examples.qa import Question
from data.examples.qa_store import encode
from data.examples.records import read_texts
from data.rows.qa_windows import window_rows
from models import build
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.evaluation import qa_spans
from pretrain.finetune import n_best
from pretrain.finetune.qa_task import settled
from pretrain.inference.batching import batches, named, padded, power
from pretrain.training.losses.answer_span import predict_spans

COLUMNS = ("question", "context")


def reader(trained):
    """A function (record, place) -> (question, context); place: None on the command line."""
    return lambda record, place: read_texts(record, place or "the command line", COLUMNS)


def told(texts, result):
    """The question, the context and the answer as lines for a person."""
    return "\n".join(
        [
            *texts,
            *(
                f"    {one['probability']:7.2%}  {one['answer'] or '(no answer)'}"
                for one in result.get("n_best", [result])
            ),
        ]
    )


class AnswerPredictor:
    """Calling it with pairs (question, context) gives {"answer", "start", "end", "score", "probability", "null_score"} of each.

    start, end: characters of the context as it was given. score: the sum of the span's two logits, null_score: that of "no answer";
    probability: the model's, of the first token times that of the last, in the row that the span stands in. Where no answer is told, `answer`
    is "", start and end are None, and the probability is that of no answer. n_best: so many answers are in `n_best`, a list of the first five
    of these keys, best first; there "no answer" of a model that knows it has null_score as its score. A question that is longer than
    `objective.question` tokens is cut as in training, and its result has "cut": true.
    """

    def __init__(self, trained, batch_size, n_best=0):
        self.config, self.objective = settled(trained).model, trained.run.data.objective
        self.model, self.params, self.vocabulary, self.batch_size = (
            build(trained.run.model, **make_local_hooks()),
            trained.params,
            trained.vocabulary,
            batch_size,
        )
        self.n_best = n_best

    def __call__(self, texts, places):
        """[result] of pairs; `places` name them in errors (None: by their number)."""
        asked = []
        for (question, context), place in zip(texts, named(places)):
            text_of(context, f"{place}: column 'context'")
            asked.append(
                Question("", text_of(question, f"{place}: column 'question'"), context, (), place)
            )
        encoded, contexts = encode(self.vocabulary, asked), [one.context for one in asked]
        rows, candidates = [], [[] for _ in asked]
        for batch, judged_B7, logits_BL2 in self._scored(encoded):
            rows.append(judged_B7)
            if self.n_best:
                self._collect(candidates, batch, judged_B7, logits_BL2, encoded, contexts)
        found = qa_spans.chosen(np.concatenate(rows), len(asked))
        spelt = qa_spans.spelt(found, encoded, contexts)
        silent = self.config.unanswerable & (found.doubts > self.threshold)
        begin_Q, end_Q = encoded.spans_Q6[:, :2].T
        cut_Q = end_Q - begin_Q > self.objective.question
        if cut := int(cut_Q.sum()):
            print(
                f"{cut:,} of {len(asked):,} questions are longer than {self.objective.question} tokens and were cut",
                file=sys.stderr,
            )
        return [
            self._result(i, spelt[i], found, silent[i], candidates[i])
            | ({"cut": True} if cut_Q[i] else {})
            for i in range(len(asked))
        ]

    @property
    def threshold(self):
        return self.config.threshold or 0.0

    def _scored(self, encoded):
        """(batch, what `answer_span.predict_spans` tells of its rows, their logits) of rows of like lengths."""
        table, rows = window_rows(self.objective, encoded.tokens, encoded.spans_Q6, self.vocabulary)
        lengths = [
            min(padded(length), self.objective.length)
            for length in (table.context_R + table.held_R + 1).tolist()
        ]
        for which in batches(lengths, self.batch_size):
            count, length = len(which), lengths[which[0]]
            batch = rows(
                np.array(which + which[:1] * (power(count) - count))
            )  # filled up with its first row
            batch = {
                key: array[:, :length] if array.ndim == 2 else array for key, array in batch.items()
            }
            judged_B7, logits_BL2 = jax.device_get(
                _best(
                    self.model,
                    self.params,
                    batch | {"label_weights": np.ones(power(count), np.float32)},
                )
            )
            yield batch, judged_B7[:count], logits_BL2[:count]

    def _collect(self, candidates, batch, judged_B7, logits_BL2, encoded, contexts):
        """Add the best candidates of each row to those of its question."""
        for row, (judged_7, logits_L2) in enumerate(zip(judged_B7, logits_BL2)):
            question, context, skipped = (
                int(batch[key][row])
                for key in ("question_ids", "context_starts", "context_offsets")
            )
            text, at = contexts[question], int(encoded.spans_Q6[question, 2]) + skipped

            def spelt(first, last, text=text, at=at):
                start, end = int(encoded.begins_T[at + first]), int(encoded.ends_T[at + last])
                return text[start:end], start, end

            held = int(batch["attention_mask"][row].sum()) - 1 - context
            candidates[question] += n_best.of_row(
                logits_L2, context, held, float(judged_7[5]), spelt, self.n_best
            )

    def _result(self, i, spelt, found, silent, candidates):
        text, start, end = ("", None, None) if silent else spelt
        result = {
            "answer": text,
            "start": start,
            "end": end,
            "score": float(found.scores[i]),
            "probability": float((found.null_probabilities if silent else found.probabilities)[i]),
            "null_score": float(found.nulls[i]),
        }
        if not self.n_best:
            return result
        several = n_best.best(candidates, self.n_best)
        if self.config.unanswerable:
            several = n_best.with_silence(
                several,
                result["null_score"],
                float(found.null_probabilities[i]),
                self.threshold,
                self.n_best,
            )
        return result | {"n_best": [one._asdict() for one in several]}


@partial(jax.jit, static_argnames="model")
def _best(model, params, batch):
    """What `answer_span.predict_spans` tells of each row, and its two logits a token, float32 [B, L, 2]."""
    logits_BL2 = model.apply(
        {"params": params}, batch["token_ids"], batch["attention_mask"], batch["token_type_ids"]
    )
    return predict_spans(logits_BL2, batch), logits_BL2
