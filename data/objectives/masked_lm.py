"""Masked language modelling: hide 15 % of the words and predict them (Devlin et al. 2018, section 3.1)."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class MaskedLm:
    """Rows `[CLS] text [SEP]` with masked positions: BERT without sentence pairs, as RoBERTa trains (Liu et al. 2019)."""

    name: ClassVar[str] = "masked_lm"
    length: int = 128  # L: tokens of a row, [CLS] and [SEP] included
    predictions: int = 20  # P: at most so many masked positions in a row
    rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    duplicates: int = 0  # 0: a new mask every epoch (RoBERTa); n: n masks in turn, fixed for the run (BERT's dupe factor)
    join_documents: bool = False  # False: rows end with their document; True: windows of one stream, [SEP] between documents

    def dims(self):
        return {"L": self.length, "P": self.predictions}
