"""Masked n-grams and sentence order: did A stand before B, or behind it? (Lan et al. 2020, sections 3.1 and 4.1).

Unlike next-sentence prediction, it cannot be told by what the two segments are about: both come from one place.

B rows   L row length   A, B the two segments
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, PAIR, TOKENS, Field
from data.inspection.masked import masks
from data.inspection.rendering import masked_row
from data.inspection.rows import orders
from data.objectives.base import Objective
from data.objectives.masking import Masker, check_masked_pair
from data.rows import hashing
from data.rows.sentence_pairs import ChunkRows, laid_out
from data.rows.tables import TokenReader

LABELS = ("A stands before B in the document", "A stands behind B in the document")


@dataclass(frozen=True)
class SentenceOrder(Objective):
    """Rows `[CLS] A [SEP] B [SEP]`, whose segments follow each other in a document, half of them in the other order."""

    name: ClassVar[str] = "sentence_order"
    description: ClassVar[str] = (
        "masked words ({mask_rate:.0%}, up to {ngram} in a row) and the order of two texts, rows of {length}"
    )
    gaps: ClassVar[str] = "masks"
    whole_words: ClassVar[bool] = True  # n-grams are of complete words
    length: int = 512  # L: tokens of a row, the three special tokens included
    max_predictions: int = 77  # P: at most so many masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    ngram: int = (
        3  # up to so many words are masked in a row, n of them with a chance in proportion to 1 / n
    )
    dupe_factor: int = 0  # 0: new pairs and masks every epoch; n: n fixed versions in turn
    short_seq_prob: float = 0.1  # share of rows that aim at a random shorter length

    def dims(self):
        return {"L": self.length, "P": self.max_predictions}

    def spec(self):
        own = {
            "sentence_order_labels": Field("int32", "B"),  # 0: A stands before B; 1: behind it
            "sentence_order_weights": Field("float32", "B"),
        }
        return TOKENS | MASKED | PAIR | own

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_masked_pair(self, vocabulary, shares=("short_seq_prob",))
        if self.ngram < 1:
            raise ValueError(f"sentence_order: ngram={self.ngram}; an n-gram has 1 word or more")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of pairs from those rows, as the keys say.

        The order of a document that is a single token, whose B is empty, has a weight of 0.
        """
        read = TokenReader(split.tokens, vocabulary.size)
        masker = Masker(self, vocabulary, self.ngram)
        table = ChunkRows(split, self.length - 3)

        def build(row_B, key_B):
            (a_start_B, a_B), (b_start_B, b_B), *_ = table.halves(row_B, key_B, self.short_seq_prob)
            swap_B = swapped(key_B)
            first = np.where(swap_B, b_start_B, a_start_B), np.where(swap_B, b_B, a_B)
            second = np.where(swap_B, a_start_B, b_start_B), np.where(swap_B, a_B, b_B)
            rows = laid_out(read, vocabulary, self.length, first, second)
            masked = masker(rows["token_ids"], rows["attention_mask"], key_B)
            return {
                **rows,
                **masked,
                "sentence_order_labels": swap_B.astype(np.int32),
                "sentence_order_weights": (b_B > 0).astype(np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return [*masks(stream, seen, token_id), *orders(stream, seen)]

    def render(self, stream, seen, i):
        return masked_row(stream, seen, i, LABELS[seen.batch["sentence_order_labels"][i]])


def swapped(key_B):
    """bool [B]: True for half of the rows, whose second segment stands first."""
    return hashing.chance(hashing.words(hashing.key(key_B, hashing.SWAP), 1)[:, 0], 0.5)
