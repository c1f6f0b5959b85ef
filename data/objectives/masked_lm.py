"""Masked language modelling: hide 15 % of the tokens and predict them.

Devlin et al. (2018), section 3.1.

B rows   L row length   P masked positions of a row
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from data.batch_spec import MASKED, SEGMENTS, TOKENS, Field
from data.objectives.masked_rows import (
    MaskedTexts,
    check_rows,
    drop_repeated_masks,
    make_masked_rows,
)
from data.objectives.masking import REPLACEMENT_SHARES, Masker
from data.objectives.objective import BuildBatch, Objective
from data.rows.ramp import CONSTANT, Ramp
from data.rows.tables import Batch, RowTable
from data.rows.words import WholeWords
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class MaskedLm(WholeWords, MaskedTexts, Objective):
    """Rows of one or several texts `[CLS] text [SEP]` with masked tokens.

    This is BERT's objective without sentence pairs, as in RoBERTa (Liu et al. 2019).
    """

    name: ClassVar[str] = "masked_lm"
    scored_tokens: ClassVar[str] = "known"
    description: ClassVar[str] = (
        "masked tokens ({mask_rate:.0%} of the tokens, rows of {length}, "
        "at most {max_predictions} masks a row)"
    )
    checks: ClassVar[str] = "masked_objectives:check_masked_texts"
    rendering: ClassVar[str] = "rendering:render_masked_row"
    gaps: ClassVar[str] = "masks"
    length: int = 128  # L: tokens of a row, special tokens included
    max_predictions: int = 20  # P: most masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    # change of `mask_rate` over the steps of training; held-out rows have `mask_rate`
    mask_ramp: Ramp = CONSTANT
    whole_words: bool = False  # mask all tokens of a word or none
    # every predicted token becomes [MASK]; else 80 % do, 10 % become another token, 10 % stay
    masks_only: bool = False
    # 0: new draws every epoch; n: n fixed versions in turn (BERT's dupe_factor)
    dupe_factor: int = 0

    @property
    def shares(self) -> tuple[float, float]:
        """Shares of the predicted tokens that become [MASK], and another token."""
        return (1.0, 0.0) if self.masks_only else REPLACEMENT_SHARES

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return TOKENS | MASKED | (SEGMENTS if self.rows == "packed" else {})

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_rows(self, vocabulary)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the masks."""
        masker = Masker(self, vocabulary, shares=self.shares)
        return make_masked_rows(self, split, vocabulary, masker)

    def drop_repeats(self, table: Any, batch: Batch, row_B: np.ndarray, key_B: np.ndarray) -> None:
        """Set to 0 the weights of tokens that are in another row as well."""
        drop_repeated_masks(table, batch, row_B)
