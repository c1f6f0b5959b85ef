"""The choices of a fine-tuned model for questions.

B questions of a batch   C choices of each   L row length   N = B * C rows
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from data.examples.choice_questions import ChoiceQuestion, parse_question
from data.rows.frames import find_padding
from models import build
from pretrain.convert import find_model_type, tokenizer
from pretrain.inference.batching import make_batches, pad_length, pad_rows, round_up_to_power
from pretrain.inference.tasks.predict_labels import shorten_pair
from pretrain.kernels.model_hooks import make_local_hooks

if TYPE_CHECKING:
    from pretrain.workdir.trained import Trained


class ChoicePredictor:
    """Predicts {"choice", "number", "probability", "probabilities"} of questions with choices.

    A question may have a different number of choices than those in training. One that is longer
    than a row in training is truncated as there, and its result has "cut": true.
    """

    def __init__(self, trained: Trained, batch_size: int) -> None:
        objective: Any = trained.run.data.objective
        self.params, self.batch_size = trained.params, batch_size
        self.pad = find_padding(trained.vocabulary)
        self.tokenizer = tokenizer.build_tokenizer(
            trained.vocabulary, find_model_type(trained.run.model), is_labelled=True
        )
        self.length = objective.length
        self.tokenizer.enable_truncation(self.length, strategy="longest_first")
        model: Any = build(trained.run.model, **make_local_hooks())
        self.probabilities_fn = jax.jit(
            lambda params, *arrays: jax.nn.softmax(model.apply({"params": params}, *arrays))
        )

    def __call__(
        self, questions: Sequence[ChoiceQuestion], places: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        """Return the result of each question."""
        rows = [
            self.tokenizer.encode_batch(
                [
                    shorten_pair(self.tokenizer, (question.texts[0], text), self.length)
                    for text in question.texts[1:]
                ]
            )
            for question in questions
        ]
        lengths = [pad_length(max(map(len, row))) for row in rows]
        results: list[Any] = [None] * len(questions)
        for batch in make_batches(
            [(len(row), length) for row, length in zip(rows, lengths)], self.batch_size
        ):
            probabilities_BC = self._compute_probabilities(
                [rows[i] for i in batch], min(lengths[batch[0]], self.length)
            )
            for i, probabilities_C in zip(batch, probabilities_BC):
                number = max(range(len(probabilities_C)), key=probabilities_C.__getitem__)
                result = {
                    "choice": questions[i].choices[number],
                    "number": number,
                    "probability": probabilities_C[number],
                    "probabilities": probabilities_C,
                }
                is_cut = any(encoding.overflowing for encoding in rows[i])
                results[i] = result | ({"cut": True} if is_cut else {})
        if num_cut := sum("cut" in result for result in results):
            print(
                f"{num_cut:,} of {len(questions):,} questions are longer than a row of "
                f"{self.length} tokens and were truncated",
                file=sys.stderr,
            )
        return results

    def _compute_probabilities(self, rows: Sequence[Sequence[Any]], L: int) -> list[list[float]]:
        """Return the probabilities [B, C] of questions with the same number of choices."""
        C, B = len(rows[0]), round_up_to_power(len(rows))
        encodings = [encoding for row in rows for encoding in row]
        tokens_NL, valid_NL = pad_rows([encoding.ids for encoding in encodings], B * C, L, self.pad)
        segments_NL, _ = pad_rows([encoding.type_ids for encoding in encodings], B * C, L, 0)
        arrays = (array.reshape(B, C, L) for array in (tokens_NL, valid_NL, segments_NL))
        return jax.device_get(self.probabilities_fn(self.params, *arrays))[: len(rows)].tolist()


def make_reader(trained: Trained) -> Callable[[dict[str, Any], str | None], ChoiceQuestion]:
    """Return a function (record, place) that returns the question of a record.

    The place is None on the command line.
    """
    return lambda record, place: parse_question(record, place or "the command line")


def format_choices(question: ChoiceQuestion, result: dict[str, Any]) -> str:
    """Return a question with its choices, most probable first, formatted for the terminal."""
    ranked = sorted(zip(result["probabilities"], question.choices), key=lambda pair: -pair[0])
    return "\n".join(
        [
            question.texts[0],
            *(f"    {probability:7.2%}  {choice}" for probability, choice in ranked),
        ]
    )
