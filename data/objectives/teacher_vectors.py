"""Distillation of vectors: a text's vector comes near to the one that a teacher gave it.

Reimers and Gurevych (2020), "Making monolingual sentence embeddings multilingual", section 2.

B examples   K = 1 text   L row length   W components of a vector
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
class TeacherVectors(Objective):
    """A text and its vector by a teacher, from a store that `finetune` writes."""

    name: ClassVar[str] = "teacher_vectors"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    separators: ClassVar[int] = 1  # of rows of two texts; these have one
    description: ClassVar[str] = "the vectors of a teacher, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_texts"
    texts: ClassVar[int] = 1
    spans: ClassVar[bool] = False
    # L: tokens of a row, special tokens included; longer texts are truncated and counted
    length: int = 128
    width: int = 1  # W: components of a teacher's vector
    # of [CLS] in a row; XLNet: last; causal decoders: none
    cls_position: Literal["first", "last", "none"] = "first"
    columns: tuple[str, ...] = ("text", "vector")  # of the files
    # what is compared: vectors of length 1, or of any
    target: Literal["direction", "vector"] = "direction"

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "K": one text, "W": the components of a vector}."""
        return {"L": self.length, "K": self.texts, "W": self.width}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch: a row and a vector for each text."""
        return {
            "token_ids": Field("int32", "BKL", TOKEN_ID),
            "attention_mask": Field("bool", "BKL"),
            "token_type_ids": Field("int32", "BKL"),  # 2 for a [CLS] at the end, else 0
            "teacher_vectors": Field("float32", "BW"),
            "label_weights": Field("float32", "B"),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_labelled(self, vocabulary)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[TextRows, BuildBatch]:
        """Return the table of texts and the function that builds batches."""
        table, build_rows = make_text_rows(self, split, vocabulary)
        found = table.labels.shape[1] if table.labels.ndim > 1 else 1
        if found != self.width:
            raise ValueError(
                f"{self.name}: width={self.width}; the vectors of the examples have {found} "
                "components"
            )
        vectors_DW = table.labels.reshape(-1, self.width)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            return build_rows(row_B, key_B) | {
                "teacher_vectors": vectors_DW[row_B].astype(np.float32),
                "label_weights": np.ones(len(row_B), np.float32),
            }

        return table, build_batch
