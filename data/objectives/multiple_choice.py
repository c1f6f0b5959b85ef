"""Multiple choice: which of some texts goes on with another one, or answers it (Zellers et al. 2018; Devlin et al. 2018, section 4.4)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import TOKEN_ID, Field
from data.inspection.choices import choices, question_row
from data.objectives.base import Objective
from data.objectives.labelled_checks import check_labelled
from data.rows.labelled import fit, pairs
from data.rows.tables import source_edges


@dataclass(frozen=True)
class MultipleChoice(Objective):
    """A row for each choice of a question, of a store that `finetune` makes."""

    name: ClassVar[str] = "multiple_choice"
    description: ClassVar[str] = "the right one of {choices} choices, rows of {length}"
    length: int = 128  # L: tokens of a row, [CLS] and [SEP]s included; what is longer is cut as a pair of texts is, and its question counted
    choices: int = 4  # C
    separators: int = 1  # [SEP]s between the texts of a pair; RoBERTa has 2

    def dims(self):
        return {"L": self.length, "C": self.choices}

    def spec(self):
        return {  # a row for each choice of a question
            "token_ids": Field("int32", "BCL", TOKEN_ID),
            "attention_mask": Field("bool", "BCL"),
            "token_type_ids": Field("int32", "BCL"),  # 1 for the choice and the [SEP] behind it
            "labels": Field("int32", "B"),  # the number of the right choice
            "label_weights": Field("float32", "B"),
        }

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_labelled(self, vocabulary)
        if self.choices < 2:
            raise ValueError(f"multiple_choice: choices={self.choices}; 2 at least")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those questions; nothing is drawn."""
        table, rows = ChoiceRows(split, self), pairs(self, split, vocabulary)
        labels_D = split.labels.astype(np.int32)

        def build(row_B, key_B):
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

        return table, build

    def measure(self, stream, seen, token_id):
        return choices(stream, seen, token_id)

    def render(self, stream, seen, i):
        return question_row(stream, seen, i)


class ChoiceRows:
    """The questions of a split; `cut` of them have a choice that does not fit into a row with the first text."""

    def __init__(self, split, objective):
        if split.labels is None:
            raise ValueError(
                "its documents have no labels; `finetune` makes a store of labelled examples"
            )
        self.count, starts = len(split.labels), np.asarray(split.sentence_starts)
        texts = (len(starts) - 1) // self.count
        if texts != objective.choices + 1:
            raise ValueError(
                f"its questions have {texts - 1} choices; data.objective.choices={objective.choices}"
            )
        start_DT, length_DT = (
            starts[:-1].reshape(self.count, texts),
            np.diff(starts).reshape(self.count, texts),
        )
        width = objective.length - 2 - objective.separators
        self.start_DC2, whole_DC2 = (
            np.stack(np.broadcast_arrays(array[:, :1], array[:, 1:]), axis=2)
            for array in (start_DT, length_DT)
        )
        self.length_DC2 = np.stack(fit(whole_DC2[..., 0], whole_DC2[..., 1], width), axis=2)
        self.cut = int((whole_DC2.sum(axis=2) > width).any(axis=1).sum())
        self.offsets = source_edges(split)
