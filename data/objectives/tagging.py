"""Tagging: a label for each word of a text, told at its first piece (Devlin et al. 2018, section 5.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import TOKENS, Field
from data.inspection.word_tags import tagged_row, tags
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.objectives.weighting import check_weights, weight_of
from data.rows.tagged import tagged_rows


@dataclass(frozen=True)
class Tagging(Objective):
    """Rows of one sentence each, of a store that `finetune` makes."""

    name: ClassVar[str] = "tagging"
    description: ClassVar[str] = "the tags of words, rows of {length}"
    length: int = (
        128  # L: tokens of a row, [CLS] and [SEP] included; what is longer is cut, and counted
    )
    columns: tuple[
        str, ...
    ] = ()  # of JSON lines: the names of the words and of the tags; () are the usual ones
    class_weights: tuple[
        float, ...
    ] = ()  # how much a word of each tag weighs in the loss; () is all alike

    def dims(self):
        return {"L": self.length}

    def spec(self):
        return TOKENS | {
            "labels": Field("int32", "BL"),  # the number of a word's tag, at its first piece
            "label_weights": Field("float32", "BL"),  # there, of its tag
            "word_weights": Field("float32", "BL"),  # 1.0 there
            "row_weights": Field("float32", "B"),  # 1.0 for a row
        }

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 3:
            raise ValueError(
                f"tagging: length={self.length}; a row holds [CLS], a piece and [SEP], so 3 at least"
            )
        if len(self.columns) not in (0, 2):
            raise ValueError(
                f"tagging: columns={self.columns}; the name of the words and that of the tags"
            )
        needs(self.name, vocabulary, "cls", "sep", "pad")
        check_weights(self)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn."""
        table, rows = tagged_rows(self, split, vocabulary)
        weight_C = weight_of(self, table.tag_T.max(initial=-1) + 1)

        def build(row_B, key_B):
            batch = rows(row_B)
            weights_BL = batch["word_weights"] * weight_C[batch["labels"]]
            return {
                **batch,
                "label_weights": weights_BL,
                "row_weights": np.ones(len(row_B), np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return tags(stream, seen, token_id)

    def render(self, stream, seen, i):
        return tagged_row(stream, seen, i)
