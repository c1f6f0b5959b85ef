"""The choice for a question that a fine-tuned model takes.

B questions of a batch   C choices of each   L row length   N = B * C rows
"""

import sys
from typing import Any

import jax

from data.examples.multiple_choice import question_of
from models import build
from pretrain.convert import name_of, tokenizer
from pretrain.distributed.model_hooks import make_local_hooks
from pretrain.inference.batching import batches, fill, padded, power


class ChoicePredictor:
    """Calling it with questions, each a `data.examples.multiple_choice.Question`, gives {"choice", "number", "probability", "probabilities"} of each.

    A question may have another number of choices than those of training. What is longer than a row of training is cut as there, and the
    result has "cut": true.
    """

    def __init__(self, trained, batch_size):
        self.params, self.pad, self.batch_size = trained.params, trained.vocabulary.pad, batch_size
        self.tokenizer = tokenizer.build(trained.vocabulary, name_of(trained.run.model))
        self.length = trained.run.data.objective.length
        self.tokenizer.enable_truncation(self.length, strategy="longest_first")
        model = build(trained.run.model, **make_local_hooks())
        self.scores = jax.jit(
            lambda params, *arrays: jax.nn.softmax(model.apply({"params": params}, *arrays))
        )

    def __call__(self, questions, places):
        """[result] of questions."""
        rows = [
            self.tokenizer.encode_batch([(question.texts[0], text) for text in question.texts[1:]])
            for question in questions
        ]
        lengths = [padded(max(map(len, row))) for row in rows]
        results: list[Any] = [None] * len(questions)
        for batch in batches(
            [(len(row), length) for row, length in zip(rows, lengths)], self.batch_size
        ):
            probabilities_BC = self._probabilities(
                [rows[i] for i in batch], min(lengths[batch[0]], self.length)
            )
            for i, probabilities_C in zip(batch, probabilities_BC):
                number = max(range(len(probabilities_C)), key=probabilities_C.__getitem__)
                told = {
                    "choice": questions[i].choices[number],
                    "number": number,
                    "probability": probabilities_C[number],
                }
                cut = {"cut": True} if any(encoding.overflowing for encoding in rows[i]) else {}
                results[i] = told | {"probabilities": probabilities_C} | cut
        if cut := sum("cut" in result for result in results):
            print(
                f"{cut:,} of {len(questions):,} questions are longer than a row of {self.length} tokens and were cut",
                file=sys.stderr,
            )
        return results

    def _probabilities(self, rows, L):
        """float [B, C] of questions that have as many choices."""
        C, B = len(rows[0]), power(len(rows))
        encodings = [encoding for row in rows for encoding in row]
        tokens_NL, valid_NL = fill([encoding.ids for encoding in encodings], B * C, L, self.pad)
        segments_NL, _ = fill([encoding.type_ids for encoding in encodings], B * C, L, 0)
        arrays = (array.reshape(B, C, L) for array in (tokens_NL, valid_NL, segments_NL))
        return jax.device_get(self.scores(self.params, *arrays))[: len(rows)].tolist()


def reader(trained):
    """A function (record, place) -> the `Question` in it; place: None on the command line."""
    return lambda record, place: question_of(record, place or "the command line")


def told(question, result):
    """A question with its choices, the one that is taken first, as lines for a person."""
    likely = sorted(zip(result["probabilities"], question.choices), key=lambda pair: -pair[0])
    return "\n".join(
        [
            question.texts[0],
            *(f"    {probability:7.2%}  {choice}" for probability, choice in likely),
        ]
    )
