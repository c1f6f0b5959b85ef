"""Contrastive learning: find the text that belongs to a query among all texts of the batch.

Van den Oord et al. (2018), InfoNCE; Henderson et al. (2017), the other examples' texts as
negatives; Gao et al. (2021), SimCSE, where a text belongs to itself under another dropout; Kusupati
et al. (2022), Matryoshka widths; Izacard et al. (2022), two spans of one document.

B examples   K texts of each   L row length
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
class Contrastive(Objective):
    """A query, the text that belongs to it and negatives, from a store that `finetune` writes.

    An example of a single text is its own positive: dropout alone makes the two vectors differ.
    """

    name: ClassVar[str] = "contrastive"
    text_documents: ClassVar[str] = ""
    reads_examples: ClassVar[bool] = True
    compares_rows: ClassVar[bool] = True
    separators: ClassVar[int] = 1  # of rows of two texts; these have one
    description: ClassVar[str] = "the positive of a query in a batch, rows of {length}"
    rendering: ClassVar[str] = "fine_tuning_rows:render_texts"
    # L: tokens of a row, special tokens included; longer texts are truncated and counted
    length: int = 128
    texts: int = 2  # K: texts of an example: the query, its positive, and negatives of its own
    # of [CLS] in a row; XLNet: last; causal decoders: none
    cls_position: Literal["first", "last", "none"] = "first"
    columns: tuple[str, ...] = ("query", "positive")  # of the files
    # what is found: the positive of a query; or that, and the query of a positive, half each
    directions: Literal["queries", "both"] = "queries"
    # a single text's rows are two spans of it, others in each epoch, not the whole text
    spans: bool = False
    # Matryoshka: numbers of first components of a vector that are vectors by themselves; their
    # losses are added up; (): all components alone
    widths: tuple[int, ...] = ()

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "K": the texts of an example}."""
        return {"L": self.length, "K": self.texts}

    def count_positions(self) -> int:
        """Return the number of tokens of an example, padding included."""
        return self.length * self.texts

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch: a row for each text of each example."""
        return {
            "token_ids": Field("int32", "BKL", TOKEN_ID),
            "attention_mask": Field("bool", "BKL"),
            "token_type_ids": Field("int32", "BKL"),  # 2 for a [CLS] at the end, else 0
            "label_weights": Field("float32", "B"),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_labelled(self, vocabulary)
        if self.texts < 2:
            raise ValueError(
                f"{self.name}: texts={self.texts}; an example is a query and its positive, so 2 at "
                "least"
            )
        if len(set(self.widths)) < len(self.widths) or min(self.widths, default=1) < 1:
            raise ValueError(f"{self.name}: widths={self.widths}; all must differ and be above 0")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[TextRows, BuildBatch]:
        """Return the table of examples and the function that builds batches."""
        table, build_rows = make_text_rows(self, split, vocabulary)
        if self.spans and not table.is_single:
            raise ValueError(
                f"{self.name}: spans=true is for examples of a single text; these have {self.texts}"
            )

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            weights_B = np.ones(len(row_B), np.float32)
            return build_rows(row_B, key_B) | {"label_weights": weights_B}

        return table, build_batch
