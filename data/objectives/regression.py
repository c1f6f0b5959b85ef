"""Regression: predict the score of a text, or of a pair of texts, such as their similarity.

Cer et al. (2017), STS benchmark.

B rows   L row length
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import PAIR, Field, add_characters, spell_fields
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_labelled
from data.rows.labelled_rows import LabelledRows, make_labelled_rows
from data.rows.tables import Batch
from data.store.split import Split
from data.vocabulary.base import Vocabulary
from data.vocabulary.spelling import spell_batches


@dataclass(frozen=True)
class Regression(Objective):
    """Rows of one example each, from a store that `finetune` writes."""

    name: ClassVar[str] = "regression"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    can_spell: ClassVar[bool] = True
    description: ClassVar[str] = "the scores of examples, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_label"
    # L: tokens of a row, special tokens included; longer examples are truncated and counted
    length: int = 128
    separators: int = 1  # [SEP]s between the texts of a pair; RoBERTa has 2
    # of [CLS] in a row; XLNet: last; causal decoders: none
    cls_position: Literal["first", "last", "none"] = "first"
    # columns of the files: one text or two, and the label
    columns: tuple[str, ...] = ("text", "label")
    characters: int = 0  # characters per word for character-based models; 0 feeds word ids

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}, and {"C"} of characters."""
        return add_characters({"L": self.length}, self.characters)

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        fields = PAIR | {
            "labels": Field("float32", "B"),  # the score
            "label_weights": Field("float32", "B"),
        }
        return spell_fields(fields, self.characters)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_labelled(self, vocabulary)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[LabelledRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys are not used."""
        table, rows = make_labelled_rows(self, split, vocabulary)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            return {
                **rows(row_B),
                "labels": table.labels[row_B].astype(np.float32),
                "label_weights": np.ones(len(row_B), np.float32),
            }

        return table, spell_batches(build_batch, vocabulary, self.characters)
