"""Where in a context the answer to a question stands: its first and its last token (Devlin et al. 2018, sections 4.2 and 4.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import PAIR, Field
from data.inspection.qa import window_row, windows
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.rows.qa_windows import window_rows
from data.store.qa_reader import opened


@dataclass(frozen=True)
class AnswerSpan(Objective):
    """Rows of a question and a part of its context, of a store that `finetune` makes."""

    name: ClassVar[str] = "answer_span"
    description: ClassVar[str] = (
        "where answers to questions begin and end, rows of {length} that share {stride} tokens of a longer context"
    )
    length: int = (
        384  # L: tokens of a row, [CLS] and [SEP]s included; a longer context is read in several
    )
    stride: int = 128  # tokens of the context that two rows of a question share
    question: int = 64  # tokens of a question; what is longer is cut, and counted
    separators: int = 1  # [SEP]s between question and context; RoBERTa has 2

    def dims(self):
        return {"L": self.length}

    def spec(self):
        return PAIR | {
            # Of the answer's first and last token; 0, which is [CLS], where it is not in this part of the context.
            "start_positions": Field("int32", "B"),
            "end_positions": Field("int32", "B"),
            "question_ids": Field(
                "int32", "B"
            ),  # the number of the question in its part of the store
            "context_starts": Field("int32", "B"),  # the position that the context begins at
            "context_offsets": Field("int32", "B"),  # how many of its tokens stand before this part
            "label_weights": Field("float32", "B"),
        }

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.separators not in (1, 2):
            raise ValueError(
                f"answer_span: separators={self.separators}; between two texts stand one or two [SEP]"
            )
        if self.question < 1 or self.stride < 0:
            raise ValueError(
                f"answer_span: question={self.question} and stride={self.stride}; a question has a token at least, rows share 0 or more"
            )
        if (room := self.length - self.question - 2 - self.separators) <= self.stride:
            told = f"length={self.length} leaves {room} tokens for the context beside a question of {self.question}"
            raise ValueError(
                f"answer_span: {told}, of which stride={self.stride} would be read before: shorten question or stride"
            )
        needs(self.name, vocabulary, "cls", "sep", "pad")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn."""
        table, rows = window_rows(self, split.tokens, opened(split).spans_Q6, vocabulary)
        return table, lambda row_B, key_B: {
            **rows(row_B),
            "label_weights": np.ones(len(row_B), np.float32),
        }

    def measure(self, stream, seen, token_id):
        return windows(stream, seen, token_id)

    def render(self, stream, seen, i):
        return window_row(stream, seen, i)
