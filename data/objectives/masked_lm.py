"""Masked language modelling: hide 15 % of the words and predict them (Devlin et al. 2018, section 3.1).

B rows   S of them   L row length   N = L - 2 tokens of text
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from data.batch_spec import MASKED, SEGMENTS, TOKENS
from data.inspection.masked import masks
from data.inspection.rendering import masked_row
from data.inspection.rows import texts
from data.objectives.base import Objective
from data.objectives.masked_rows import check_rows, masked_rows
from data.objectives.masking import Masker


@dataclass(frozen=True)
class MaskedLm(Objective):
    """Rows `[CLS] text [SEP]`, or several of these, with masked positions: BERT without sentence pairs, as in RoBERTa (Liu et al. 2019)."""

    name: ClassVar[str] = "masked_lm"
    description: ClassVar[str] = (
        "masked words ({mask_rate:.0%} of the tokens, rows of {length}, at most {max_predictions} masks a row)"
    )
    gaps: ClassVar[str] = "masks"
    length: int = 128  # L: tokens of a row, [CLS] and [SEP] included
    max_predictions: int = 20  # P: at most so many masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    dupe_factor: int = (
        0  # 0: a new mask every epoch (RoBERTa); n: n fixed masks in turn (BERT's dupe factor)
    )
    rows: Literal["documents", "windows", "sentences", "packed"] = (
        "packed"  # what a row is made of: see ROWS
    )

    def dims(self):
        return {"L": self.length, "P": self.max_predictions}

    def spec(self):
        return TOKENS | MASKED | (SEGMENTS if self.rows == "packed" else {})

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_rows(self, vocabulary)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, masked as the keys say."""
        return masked_rows(self, split, vocabulary, Masker(self, vocabulary))

    def measure(self, stream, seen, token_id):
        return [*masks(stream, seen, token_id), *texts(stream, seen)]

    def render(self, stream, seen, i):
        return masked_row(stream, seen, i)
