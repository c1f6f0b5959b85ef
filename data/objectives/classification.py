"""Classification: which class a text, or a pair of texts, belongs to (Devlin et al. 2018, section 4.1)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import PAIR, Field
from data.inspection.labelled import labelled_row, labels
from data.objectives.base import Objective
from data.objectives.labelled_checks import check_labelled
from data.objectives.weighting import check_weights, weight_of
from data.rows.labelled import labelled_rows


@dataclass(frozen=True)
class Classification(Objective):
    """Rows of one example each, of a store that `finetune` makes."""

    name: ClassVar[str] = "classification"
    description: ClassVar[str] = "the labels of examples, rows of {length}"
    length: int = (
        128  # L: tokens of a row, [CLS] and [SEP]s included; what is longer is cut, and counted
    )
    separators: int = 1  # [SEP]s between the texts of a pair; RoBERTa has 2
    columns: tuple[str, ...] = (
        "text",
        "label",
    )  # of the files of examples: the text, or the two texts, and the label
    class_weights: tuple[
        float, ...
    ] = ()  # how much an example of each class weighs in the loss; () is all alike

    def dims(self):
        return {"L": self.length}

    def spec(self):
        return PAIR | {
            "labels": Field("int32", "B"),  # the number of a class
            "label_weights": Field("float32", "B"),  # of its class
            "row_weights": Field("float32", "B"),  # 1.0 for a row
        }

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_labelled(self, vocabulary)
        check_weights(self)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn."""
        table, rows = labelled_rows(self, split, vocabulary)
        labels_D = table.labels.astype(np.int32)
        weight_C = weight_of(self, labels_D.max(initial=-1) + 1)

        def build(row_B, key_B):
            labels_B, ones_B = labels_D[row_B], np.ones(len(row_B), np.float32)
            return {
                **rows(row_B),
                "labels": labels_B,
                "label_weights": weight_C[labels_B],
                "row_weights": ones_B,
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return labels(stream, seen, token_id)

    def render(self, stream, seen, i):
        return labelled_row(stream, seen, i)
