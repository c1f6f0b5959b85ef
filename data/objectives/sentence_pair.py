"""Masked words and next-sentence prediction: does B follow A, or come from elsewhere? (Devlin et al. 2018).

B rows   L row length   A, B the two segments
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, PAIR, TOKENS, Field
from data.inspection.masked import masks
from data.inspection.rendering import masked_row
from data.inspection.rows import pairs
from data.objectives.base import Objective
from data.objectives.masking import Masker, check_masked_pair
from data.rows.sentence_pairs import SentencePairRows, laid_out
from data.rows.tables import TokenReader

LABELS = ("B follows A", "B comes from another document")


@dataclass(frozen=True)
class SentencePair(Objective):
    """Rows `[CLS] A [SEP] B [SEP]`, masked as in `MaskedLm`; B follows A in its document or comes from another one."""

    name: ClassVar[str] = "sentence_pair"
    description: ClassVar[str] = (
        "masked words ({mask_rate:.0%}) and next sentence ({random_next:.0%} of the pairs are of two documents), rows of {length}"
    )
    gaps: ClassVar[str] = "masks"
    length: int = 128  # L: tokens of a row, the three special tokens included
    max_predictions: int = 20  # P: at most so many masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    dupe_factor: int = (
        0  # 0: new pairs and masks every epoch; n: n fixed versions in turn (BERT's dupe factor)
    )
    short_seq_prob: float = 0.1  # share of rows that aim at a random shorter length
    random_next: float = 0.5  # share of rows whose B comes from another document

    def dims(self):
        return {"L": self.length, "P": self.max_predictions}

    def spec(self):
        own = {
            "next_sentence_labels": Field("int32", "B"),  # 0: B follows A; 1: is of another text
            "next_sentence_weights": Field("float32", "B"),
        }
        return TOKENS | MASKED | PAIR | own

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_masked_pair(self, vocabulary, shares=("short_seq_prob", "random_next"))

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of pairs from those rows, as the keys say."""
        read, masker = TokenReader(split.tokens, vocabulary.size), Masker(self, vocabulary)
        table = SentencePairRows(split, self.length - 3)

        def build(row_B, key_B):
            first, second, other_B = table.pairs(
                row_B, key_B, self.short_seq_prob, self.random_next
            )
            rows = laid_out(read, vocabulary, self.length, first, second)
            masked = masker(rows["token_ids"], rows["attention_mask"], key_B)
            ones_B = np.ones(len(row_B), np.float32)
            return {
                **rows,
                **masked,
                "next_sentence_labels": other_B.astype(np.int32),
                "next_sentence_weights": ones_B,
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return [*masks(stream, seen, token_id), *pairs(stream, seen)]

    def render(self, stream, seen, i):
        return masked_row(stream, seen, i, LABELS[seen.batch["next_sentence_labels"][i]])
