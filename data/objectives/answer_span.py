"""Extractive question answering: predict the first and the last token of the answer in a context.

Devlin et al. (2018), sections 4.2 and 4.3.

B rows   L row length
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import PAIR, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows.qa_windows import QuestionWindowRows, make_window_rows
from data.store.qa_reader import open_questions
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class AnswerSpan(Objective):
    """Rows of a question and a window of its context, from a store that `finetune` writes."""

    name: ClassVar[str] = "answer_span"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    description: ClassVar[str] = (
        "where answers to questions begin and end, "
        "rows of {length} that share {stride} tokens of a longer context"
    )
    rendering: ClassVar[str] = "fine_tuning_rows:render_answer"
    # L: tokens of a row, special tokens included; a longer context takes several rows
    length: int = 384
    stride: int = 128  # context tokens that two rows of a question share
    question: int = 64  # most tokens of a question; longer ones are truncated and counted
    separators: int = 1  # [SEP]s between question and context; RoBERTa has 2
    cls_position: Literal["first", "last"] = "first"  # of [CLS] in a row; XLNet: last

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}."""
        return {"L": self.length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return PAIR | {
            # First and last token of the answer; the [CLS] where this window lacks it.
            "start_positions": Field("int32", "B"),
            "end_positions": Field("int32", "B"),
            "question_ids": Field("int32", "B"),  # number of the question in its split
            "context_starts": Field("int32", "B"),  # position of the context's first token
            "context_offsets": Field("int32", "B"),  # tokens of the context before this window
            "text_tokens": Field("bool", "BL"),  # True at tokens of the context that hold text
            "label_weights": Field("float32", "B"),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.separators not in (1, 2):
            raise ValueError(
                f"answer_span: separators={self.separators}; "
                "there are one or two [SEP] between two texts"
            )
        if self.question < 1 or self.stride < 0:
            raise ValueError(
                f"answer_span: question={self.question} and stride={self.stride}; "
                "a question has at least one token, rows share 0 or more"
            )
        if (room := self.length - self.question - 2 - self.separators) <= self.stride:
            raise ValueError(
                f"answer_span: length={self.length} leaves {room} tokens for the context next to a "
                f"question of {self.question}, and stride={self.stride} of them repeat the row "
                "before: shorten question or stride"
            )
        check_special_tokens(self.name, vocabulary, "cls", "sep", "pad")

    def make_rows(
        self, split: Split, vocabulary: Vocabulary
    ) -> tuple[QuestionWindowRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys are not used."""
        table, rows = make_window_rows(self, open_questions(split), vocabulary)
        return table, lambda row_B, key_B: {
            **rows(row_B),
            "label_weights": np.ones(len(row_B), np.float32),
        }
