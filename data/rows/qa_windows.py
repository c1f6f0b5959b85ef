"""Rows of questions and contexts: `[CLS] question [SEP] window of the context [SEP]`.

A question has as many rows as its context needs. Windows of a context overlap by `stride` tokens;
the first begins with the context, and the last ends with it (Devlin et al. 2018, section 4.2, as
their code and the tokenizers of Hugging Face cut it). A row has its answer where the window
contains all of it, else the target is [CLS]. The windows are decided when the store is opened.
Positions assume that the [CLS] is first; the last step moves it and them.

B rows   L row length   Q questions   R windows of all questions
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from data.rows.frames import frame_rows
from data.rows.tables import Batch, TokenReader, require_id
from data.store.qa_reader import Questions
from data.vocabulary.base import Vocabulary


class QuestionWindowRows:
    """Windows of the questions of data/examples/qa_store.py, in their order.

    question_R: number of the window's question.
    question_start_R, question_length_R: first token and number of tokens of the question.
    skipped_R: tokens of the context before the window.
    context_token_R, context_length_R: first token and number of tokens of the window.
    context_position_R: position in the row at which the window begins.
    start_R, end_R: positions in the row of the answer's first and last token; 0 without one.
    num_truncated: number of questions that are longer than `objective.question` tokens.
    """

    def __init__(self, spans_Q6: np.ndarray, objective: Any) -> None:
        asked_Q, asked_end_Q, first_Q, last_Q, answer_Q, answer_end_Q = spans_Q6.T
        length_Q = np.minimum(asked_end_Q - asked_Q, objective.question)
        self.num_truncated = int((asked_end_Q - asked_Q > objective.question).sum())
        self.truncation_report = f"questions that are longer than {objective.question} tokens"
        room_Q = objective.length - 2 - objective.separators - length_Q
        step_Q, size_Q = room_Q - objective.stride, last_Q - first_Q
        windows_Q = 1 + -(-np.maximum(size_Q - room_Q, 0) // step_Q)
        row_Q = np.cumsum(windows_Q) - windows_Q
        self.question_R = np.repeat(np.arange(len(spans_Q6)), windows_Q)
        self.count, self.offsets = len(self.question_R), np.array([0, len(self.question_R)])
        number_R = np.arange(self.count) - row_Q[self.question_R]
        self.skipped_R = number_R * step_Q[self.question_R]
        self.context_length_R = np.minimum(
            room_Q[self.question_R], size_Q[self.question_R] - self.skipped_R
        )
        self.question_start_R, self.question_length_R = (
            asked_Q[self.question_R],
            length_Q[self.question_R],
        )
        self.context_position_R = self.question_length_R + 1 + objective.separators
        self.context_token_R = first_Q[self.question_R] + self.skipped_R
        start_R = answer_Q[self.question_R] - self.context_token_R
        end_R = answer_end_Q[self.question_R] - self.context_token_R
        whole_R = (
            (answer_Q[self.question_R] >= 0) & (start_R >= 0) & (end_R <= self.context_length_R)
        )
        self.start_R = np.where(whole_R, self.context_position_R + start_R, 0)
        self.end_R = np.where(whole_R, self.context_position_R + end_R - 1, 0)


def make_window_rows(
    objective: Any, questions: Questions, vocabulary: Vocabulary
) -> tuple[QuestionWindowRows, Callable[[np.ndarray], Batch]]:
    """Return the table of windows and a function that lays out the rows row_B of it.

    The function returns all keys of a batch but the loss weights.
    """
    table = QuestionWindowRows(questions.spans_Q6, objective)
    read = TokenReader(questions.tokens, vocabulary.size)
    column_L = np.arange(objective.length)
    cls, sep, pad = map(require_id, (vocabulary.cls, vocabulary.sep, vocabulary.pad))

    def build_rows(row_B: np.ndarray) -> Batch:
        columns = (
            table.question_start_R,
            table.question_length_R,
            table.context_position_R,
            table.context_token_R,
            table.context_length_R,
        )
        question_B1, length_B1, context_B1, window_B1, window_length_B1 = (
            array[row_B][:, None] for array in columns
        )
        in_question_BL = (column_L > 0) & (column_L <= length_B1)
        in_context_BL = (column_L >= context_B1) & (column_L < context_B1 + window_length_B1)
        mask_BL = column_L <= context_B1 + window_length_B1
        text_BL = in_question_BL | in_context_BL
        index_BL = column_L + np.where(in_context_BL, window_B1 - context_B1, question_B1 - 1)
        tokens_BL = np.where(text_BL, read(np.where(text_BL, index_BL, 0)), sep)
        tokens_BL[:, 0] = cls
        tokens_BL = np.where(mask_BL, tokens_BL, pad).astype(np.int32)
        index_BL = np.where(in_context_BL, index_BL, 0)
        has_text_BL = questions.begins_T[index_BL] < questions.ends_T[index_BL]
        named = {
            "start_positions": table.start_R,
            "end_positions": table.end_R,
            "question_ids": table.question_R,
            "context_starts": table.context_position_R,
            "context_offsets": table.skipped_R,
        }
        rows = {
            "token_ids": tokens_BL,
            "attention_mask": mask_BL,
            "token_type_ids": ((column_L >= context_B1) & mask_BL).astype(np.int32),
            **{key: array[row_B].astype(np.int32) for key, array in named.items()},
            "text_tokens": in_context_BL & has_text_BL,
        }
        return frame_rows(objective, rows)

    return table, build_rows
