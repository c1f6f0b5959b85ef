"""Answers to questions by a fine-tuned model, as `predict` tells them: the best span of a context, however long it is.

Rows are gathered by length, so that few shapes are compiled and little padding is computed.

B batch   L row length
"""

from functools import partial

import jax
import numpy as np

from data.labelled import text_of
from data.question_store import encode
from data.questions import Question
from data.window_rows import window_rows
from models import build
from pretrain.answer_span import judged
from pretrain.finetune import spans
from pretrain.finetune.answer import texts_of
from pretrain.finetune.questions import settled
from pretrain.ragged import batches, named, padded, power

COLUMNS = ("question", "context")


def reader(trained):
    """A function (record, place) -> (question, context); place: None on the command line."""
    return lambda record, place: texts_of(record, place or "the command line", COLUMNS)


def told(texts, result):
    """The question, the context and the answer as lines for a person."""
    return "\n".join([*texts, f"    {result['probability']:7.2%}  {result['answer'] or '(no answer)'}"])


class Answers:
    """Calling it with pairs (question, context) gives {"answer", "start", "end", "score", "probability", "null_score"} of each.

    start, end: characters of the context as it was given. score: the sum of the span's two logits, null_score: that of "no answer";
    probability: the model's, of the first token times that of the last, in the row that the span stands in. Where no answer is told, `answer`
    is "", start and end are None, and the probability is that of no answer.
    """

    def __init__(self, trained, batch_size):
        self.config, self.objective = settled(trained).model, trained.run.data.objective
        self.model, self.params, self.vocabulary, self.batch_size = build(trained.run.model), trained.params, trained.vocabulary, batch_size

    def __call__(self, texts, places):
        """[result] of pairs; `places` name them in errors (None: by their number)."""
        asked = []
        for (question, context), place in zip(texts, named(places)):
            text_of(context, f"{place}: column 'context'")
            asked.append(Question("", text_of(question, f"{place}: column 'question'"), context, (), place))
        encoded = encode(self.vocabulary, asked)
        found = spans.chosen(self._judged(encoded), len(asked))
        spelt = spans.spelt(found, encoded, [one.context for one in asked])
        silent = self.config.unanswerable & (found.doubts > (self.config.threshold or 0.0))
        return [self._result(i, spelt[i], found, silent[i]) for i in range(len(asked))]

    def _judged(self, encoded):
        table, rows = window_rows(self.objective, encoded.tokens, encoded.spans_Q6, self.vocabulary)
        lengths = [min(padded(length), self.objective.length) for length in (table.context_R + table.held_R + 1).tolist()]
        parts = []
        for which in batches(lengths, self.batch_size):
            count, length = len(which), lengths[which[0]]
            batch = rows(np.array(which + which[:1] * (power(count) - count)))  # filled up with its first row
            batch = {key: array[:, :length] if array.ndim == 2 else array for key, array in batch.items()}
            parts.append(jax.device_get(_best(self.model, self.params, batch | {"weights": np.ones(power(count), np.float32)}))[:count])
        return np.concatenate(parts)

    def _result(self, i, spelt, found, silent):
        text, start, end = ("", None, None) if silent else spelt
        return {
            "answer": text,
            "start": start,
            "end": end,
            "score": float(found.scores[i]),
            "probability": float((found.null_probabilities if silent else found.probabilities)[i]),
            "null_score": float(found.nulls[i]),
        }


@partial(jax.jit, static_argnames="model")
def _best(model, params, batch):
    """What `answer_span.judged` tells of each row."""
    return judged(model.apply({"params": params}, batch["tokens"], batch["valid"], batch["segments"]), batch)
