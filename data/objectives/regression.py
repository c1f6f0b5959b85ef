"""Regression: the score of a text, or of a pair of texts, such as how alike they are (Cer et al. 2017, STS benchmark)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import PAIR, Field
from data.inspection.labelled import labelled_row, labels
from data.objectives.base import Objective
from data.objectives.labelled_checks import check_labelled
from data.rows.labelled import labelled_rows


@dataclass(frozen=True)
class Regression(Objective):
    """Rows of one example each, of a store that `finetune` makes."""

    name: ClassVar[str] = "regression"
    description: ClassVar[str] = "the scores of examples, rows of {length}"
    length: int = (
        128  # L: tokens of a row, [CLS] and [SEP]s included; what is longer is cut, and counted
    )
    separators: int = 1  # [SEP]s between the texts of a pair; RoBERTa has 2
    columns: tuple[str, ...] = (
        "text",
        "label",
    )  # of the files of examples: the text, or the two texts, and the label

    def dims(self):
        return {"L": self.length}

    def spec(self):
        return PAIR | {
            "labels": Field("float32", "B"),  # the score
            "label_weights": Field("float32", "B"),
        }

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_labelled(self, vocabulary)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn."""
        table, rows = labelled_rows(self, split, vocabulary)

        def build(row_B, key_B):
            return {
                **rows(row_B),
                "labels": table.labels[row_B].astype(np.float32),
                "label_weights": np.ones(len(row_B), np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return labels(stream, seen, token_id)

    def render(self, stream, seen, i):
        return labelled_row(stream, seen, i)
