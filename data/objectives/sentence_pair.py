"""Masked words and next-sentence prediction: does B follow A, or come from elsewhere? (Devlin et al. 2018, section 3.1)."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SentencePair:
    """Rows `[CLS] A [SEP] B [SEP]`, masked as in `MaskedLm`; B follows A in its document or comes from another one."""

    name: ClassVar[str] = "sentence_pair"
    length: int = 128  # L: tokens of a row, the three special tokens included
    predictions: int = 20  # P: at most so many masked positions in a row
    rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    duplicates: int = 0  # 0: new pairs and masks every epoch; n: n versions in turn, fixed for the run (BERT's dupe factor)
    short: float = 0.1  # share of rows that aim at a random shorter length
    random_next: float = 0.5  # share of rows whose B comes from another document

    def dims(self):
        return {"L": self.length, "P": self.predictions}
