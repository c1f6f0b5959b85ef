"""Rows of questions and contexts: `[CLS] question [SEP] part of the context [SEP]`, as many as the context needs.

Parts of a context overlap by `stride` tokens; the first begins with it, and the last ends with it (Devlin et al. 2018, section 4.2, as their
code cuts it, and as the tokenizers of Hugging Face do). A row has its answer where all of it lies in the part, else the target is [CLS].
The windows are decided when the store is opened.

B rows   L row length   Q questions   R windows of all questions
"""

import numpy as np

from data.rows.tables import TokenReader


class QuestionWindowRows:
    """Windows of the questions of data/examples/qa_store.py, in their order; `cut` of them are longer than `objective.question` tokens.

    question_R, skipped_R: whose each is, and how many tokens of the context stand before it; context_R: the position that its part of the
    context begins at; held_R: tokens of that part; start_R, end_R: positions of the answer's first and last token, 0 where it has none.
    """

    def __init__(self, spans_Q6, objective):
        asked_Q, asked_end_Q, first_Q, last_Q, answer_Q, answer_end_Q = spans_Q6.T
        length_Q = np.minimum(asked_end_Q - asked_Q, objective.question)
        self.cut = int((asked_end_Q - asked_Q > objective.question).sum())
        self.too_long = f"questions that are longer than {objective.question} tokens"
        room_Q = objective.length - 2 - objective.separators - length_Q
        step_Q, size_Q = room_Q - objective.stride, last_Q - first_Q
        windows_Q = 1 + -(-np.maximum(size_Q - room_Q, 0) // step_Q)
        row_Q = np.cumsum(windows_Q) - windows_Q
        self.question_R = np.repeat(np.arange(len(spans_Q6)), windows_Q)
        self.count, self.offsets = len(self.question_R), np.array([0, len(self.question_R)])
        number_R = np.arange(self.count) - row_Q[self.question_R]
        self.skipped_R = number_R * step_Q[self.question_R]
        self.held_R = np.minimum(room_Q[self.question_R], size_Q[self.question_R] - self.skipped_R)
        self.asked_R, self.length_R = asked_Q[self.question_R], length_Q[self.question_R]
        self.context_R = self.length_R + 1 + objective.separators
        self.part_R = (
            first_Q[self.question_R] + self.skipped_R
        )  # where the part begins in the store
        start_R, end_R = (
            answer_Q[self.question_R] - self.part_R,
            answer_end_Q[self.question_R] - self.part_R,
        )
        whole_R = (answer_Q[self.question_R] >= 0) & (start_R >= 0) & (end_R <= self.held_R)
        self.start_R = np.where(whole_R, self.context_R + start_R, 0)
        self.end_R = np.where(whole_R, self.context_R + end_R - 1, 0)


def window_rows(objective, tokens, spans_Q6, vocabulary):
    """(table, rows), where rows(row_B) gives all keys of a batch but its weights."""
    table, read = QuestionWindowRows(spans_Q6, objective), TokenReader(tokens, vocabulary.size)
    column_L = np.arange(objective.length)

    def rows(row_B):
        asked_B1, length_B1, context_B1, part_B1, held_B1 = (
            array[row_B][:, None]
            for array in (
                table.asked_R,
                table.length_R,
                table.context_R,
                table.part_R,
                table.held_R,
            )
        )
        in_question_BL = (column_L > 0) & (column_L <= length_B1)
        in_context_BL = (column_L >= context_B1) & (column_L < context_B1 + held_B1)
        valid_BL, text_BL = column_L <= context_B1 + held_B1, in_question_BL | in_context_BL
        index_BL = column_L + np.where(in_context_BL, part_B1 - context_B1, asked_B1 - 1)
        tokens_BL = np.where(text_BL, read(np.where(text_BL, index_BL, 0)), vocabulary.sep)
        tokens_BL[:, 0] = vocabulary.cls
        tokens_BL = np.where(valid_BL, tokens_BL, vocabulary.pad).astype(np.int32)
        named = {
            "start_positions": table.start_R,
            "end_positions": table.end_R,
            "question_ids": table.question_R,
            "context_starts": table.context_R,
            "context_offsets": table.skipped_R,
        }
        return {
            "token_ids": tokens_BL,
            "attention_mask": valid_BL,
            "token_type_ids": ((column_L >= context_B1) & valid_BL).astype(np.int32),
            **{key: array[row_B].astype(np.int32) for key, array in named.items()},
        }

    return table, rows
