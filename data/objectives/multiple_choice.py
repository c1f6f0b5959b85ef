"""Multiple choice: predict which of several texts continues or answers another text.

Zellers et al. (2018); Devlin et al. (2018), section 4.4.

B questions   C choices of a question   D questions of the split   L row length   T texts
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import TOKEN_ID, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_labelled
from data.objectives.weighting import read_class_numbers
from data.rows.frames import count_around
from data.rows.labelled_rows import check_separator, make_pair_builder, truncate_lengths
from data.rows.tables import Batch, find_source_edges
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class MultipleChoice(Objective):
    """One row for each choice of a question, from a store that `finetune` writes."""

    name: ClassVar[str] = "multiple_choice"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    description: ClassVar[str] = "the right one of {choices} choices, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_choice"
    # L: tokens of a row, special tokens included; longer examples are truncated and counted
    length: int = 128
    choices: int = 4  # C: choices of a question
    separators: int = 1  # [SEP]s between the texts of a pair; RoBERTa has 2
    # of [CLS] in a row; XLNet: last; causal decoders: none
    cls_position: Literal["first", "last", "none"] = "first"

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "C": the number of choices}."""
        return {"L": self.length, "C": self.choices}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch: a row for each choice of each question."""
        return {
            "token_ids": Field("int32", "BCL", TOKEN_ID),
            "attention_mask": Field("bool", "BCL"),
            "token_type_ids": Field("int32", "BCL"),  # 1 for the choice and its [SEP]
            "labels": Field("int32", "B"),  # the number of the right choice
            "label_weights": Field("float32", "B"),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_labelled(self, vocabulary)
        if self.choices < 2:
            raise ValueError(
                f"multiple_choice: choices={self.choices}; a question has at least 2 choices"
            )

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple["ChoiceRows", BuildBatch]:
        """Return the table of questions and the function that builds batches of them.

        The keys are not used.
        """
        check_separator(self, vocabulary)
        table, rows = ChoiceRows(split, self), make_pair_builder(self, split, vocabulary)
        assert split.labels is not None  # `ChoiceRows` refuses a split without labels
        labels_D = read_class_numbers(split.labels)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            flat = rows(
                table.start_DC2[row_B].reshape(-1, 2), table.length_DC2[row_B].reshape(-1, 2)
            )
            batch = {
                key: array.reshape(len(row_B), self.choices, self.length)
                for key, array in flat.items()
            }
            return {
                **batch,
                "labels": labels_D[row_B],
                "label_weights": np.ones(len(row_B), np.float32),
            }

        return table, build_batch


class ChoiceRows:
    """The questions of a split.

    start_DC2, length_DC2: int64 [D, C, 2], first token and number of tokens of the first text and
      of each choice.
    num_truncated: number of questions with a choice that does not fit into a row together with the
      first text.
    """

    def __init__(self, split: Split, objective: MultipleChoice) -> None:
        if split.labels is None:
            raise ValueError(
                "its documents have no labels; `finetune` makes a store of labelled examples"
            )
        self.count, starts = len(split.labels), np.asarray(split.sentence_starts)
        texts = (len(starts) - 1) // self.count
        if texts != objective.choices + 1:
            raise ValueError(
                f"its questions have {texts - 1} choices; "
                f"data.objective.choices={objective.choices}"
            )
        start_DT = starts[:-1].reshape(self.count, texts)
        length_DT = np.diff(starts).reshape(self.count, texts)
        width = objective.length - count_around(objective) - objective.separators
        self.start_DC2, whole_DC2 = (
            np.stack(np.broadcast_arrays(array[:, :1], array[:, 1:]), axis=2)
            for array in (start_DT, length_DT)
        )
        self.length_DC2 = np.stack(
            truncate_lengths(whole_DC2[..., 0], whole_DC2[..., 1], width), axis=2
        )
        self.num_truncated = int((whole_DC2.sum(axis=2) > width).any(axis=1).sum())
        self.offsets = find_source_edges(split)
