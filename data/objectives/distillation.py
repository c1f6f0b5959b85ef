"""Distillation: masked language modelling with the predictions of a larger model as targets.

Sanh et al. (2019), section 2. The batches are as in `masked_lm`, with weights of the positions
whose states are compared.

B rows   L row length
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import Field
from data.objectives.masked_lm import MaskedLm
from data.objectives.objective import BuildBatch
from data.rows.tables import Batch, RowTable
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class Distillation(MaskedLm):
    """Rows of masked_lm, on which the loss compares the model with a teacher."""

    name: ClassVar[str] = "distillation"
    description: ClassVar[str] = (
        "masked tokens ({mask_rate:.0%}) and a larger model's predictions of them, rows of {length}"
    )

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        # 1.0 at real tokens, whose states are compared with the teacher's.
        return super().describe_batch() | {"state_weights": Field("float32", "BL")}

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the masks."""
        table, build_masked = super().make_rows(split, vocabulary)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray, *rates: np.ndarray) -> Batch:
            rows = build_masked(row_B, key_B, *rates)
            return rows | {"state_weights": rows["attention_mask"].astype(np.float32)}

        return table, build_batch
