"""Similarity: the cosine of two texts' vectors follows a score, as of the STS benchmark.

Reimers and Gurevych (2019), section 3, the squared error of the cosine; Su (2022), CoSENT, which
compares the order of the scores alone.

B examples   K = 2 texts   L row length
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import TOKEN_ID, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_labelled
from data.rows.tables import Batch
from data.rows.text_rows import TextRows, make_text_rows
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class Similarity(Objective):
    """Two texts and the score of their similarity, from a store that `finetune` writes."""

    name: ClassVar[str] = "similarity"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = True
    separators: ClassVar[int] = 1  # of rows of two texts; these have one
    description: ClassVar[str] = "the similarity of two texts, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_texts"
    texts: ClassVar[int] = 2
    spans: ClassVar[bool] = False
    # L: tokens of a row, special tokens included; longer texts are truncated and counted
    length: int = 128
    # of [CLS] in a row; XLNet: last; causal decoders: none
    cls_position: Literal["first", "last", "none"] = "first"
    columns: tuple[str, ...] = ("sentence1", "sentence2", "score")  # of the files
    # what is learned: the order of the scores (CoSENT), or score / highest by squared error
    target: Literal["order", "cosine"] = "order"
    highest: float = 1.0  # score of two texts that mean the same, for target=cosine

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "K": two texts}."""
        return {"L": self.length, "K": self.texts}

    def count_positions(self) -> int:
        """Return the number of tokens of an example, padding included."""
        return self.length * self.texts

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch: a row for each text of each pair."""
        return {
            "token_ids": Field("int32", "BKL", TOKEN_ID),
            "attention_mask": Field("bool", "BKL"),
            "token_type_ids": Field("int32", "BKL"),  # 2 for a [CLS] at the end, else 0
            "labels": Field("float32", "B"),  # the score
            "label_weights": Field("float32", "B"),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_labelled(self, vocabulary)
        if not self.highest > 0:
            raise ValueError(f"{self.name}: highest={self.highest:g}; it must be above 0")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[TextRows, BuildBatch]:
        """Return the table of pairs and the function that builds batches."""
        table, build_rows = make_text_rows(self, split, vocabulary)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            return build_rows(row_B, key_B) | {
                "labels": table.labels[row_B].astype(np.float32),
                "label_weights": np.ones(len(row_B), np.float32),
            }

        return table, build_batch
