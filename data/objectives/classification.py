"""Classification: predict the class of a text, or of a pair of texts.

Devlin et al. (2018), section 4.1.

B rows   C classes   D examples   L row length
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import PAIR, Field, add_characters, spell_fields
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_labelled
from data.objectives.weighting import check_weights, get_class_weights, read_class_numbers
from data.rows.labelled_rows import LabelledRows, make_labelled_rows
from data.rows.tables import Batch
from data.store.split import Split
from data.vocabulary.base import Vocabulary
from data.vocabulary.spelling import spell_batches


@dataclass(frozen=True)
class Classification(Objective):
    """Rows of one example each, from a store that `finetune` writes."""

    name: ClassVar[str] = "classification"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    can_spell: ClassVar[bool] = True
    description: ClassVar[str] = "the labels of examples, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_label"
    # L: tokens of a row, special tokens included; longer examples are truncated and counted
    length: int = 128
    separators: int = 1  # [SEP]s between the texts of a pair; RoBERTa has 2
    # of [CLS] in a row; XLNet: last; causal decoders: none
    cls_position: Literal["first", "last", "none"] = "first"
    # columns of the files: one text or two, and the label
    columns: tuple[str, ...] = ("text", "label")
    class_weights: tuple[float, ...] = ()  # loss weight of each class; (): equal
    characters: int = 0  # characters per word for character-based models; 0 feeds word ids

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}, and {"C"} of characters."""
        return add_characters({"L": self.length}, self.characters)

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        fields = PAIR | {
            "labels": Field("int32", "B"),  # the number of a class
            "label_weights": Field("float32", "B"),  # the weight of that class
            "row_weights": Field("float32", "B"),  # 1.0 for a row
        }
        return spell_fields(fields, self.characters)

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_labelled(self, vocabulary)
        check_weights(self)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[LabelledRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys are not used."""
        table, rows = make_labelled_rows(self, split, vocabulary)
        labels_D = read_class_numbers(table.labels)
        weight_C = get_class_weights(self, labels_D.max(initial=-1) + 1)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            labels_B, ones_B = labels_D[row_B], np.ones(len(row_B), np.float32)
            return {
                **rows(row_B),
                "labels": labels_B,
                "label_weights": weight_C[labels_B],
                "row_weights": ones_B,
            }

        return table, spell_batches(build_batch, vocabulary, self.characters)
