"""Masked n-grams and sentence-order prediction: are two consecutive segments in their order?

Lan et al. (2020), sections 3.1 and 4.1. Unlike next-sentence prediction, this does not follow from
the topics of the two segments: both come from the same place.

B rows   L row length   P masked positions of a row   A, B the two segments
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, PAIR, TOKENS, Field
from data.objectives.masking import Masker
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_masked_pair
from data.rows import hashing
from data.rows.sentence_pairs import ChunkRows, lay_out_pairs
from data.rows.tables import Batch, TokenReader
from data.rows.words import WholeWords
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class SentenceOrder(WholeWords, Objective):
    """Rows `[CLS] A [SEP] B [SEP]` of consecutive segments, half of them in the other order."""

    name: ClassVar[str] = "sentence_order"
    scored_tokens: ClassVar[str] = "known"
    description: ClassVar[str] = (
        "masked tokens ({mask_rate:.0%}, up to {ngram} words in a row) "
        "and the order of two texts, rows of {length}"
    )
    checks: ClassVar[str] = "masked_objectives:check_masked_order"
    rendering: ClassVar[str] = "masked_objectives:render_masked_order"
    gaps: ClassVar[str] = "masks"
    whole_words: ClassVar[bool] = True  # n-grams consist of complete words
    length: int = 512  # L: tokens of a row, special tokens included
    max_predictions: int = 77  # P: most masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    ngram: int = 3  # most consecutive words masked together; n words have weight 1 / n
    # 0: new draws every epoch; n: n fixed versions in turn (BERT's dupe_factor)
    dupe_factor: int = 0
    short_seq_prob: float = 0.1  # share of rows that aim at a random shorter length

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        own = {
            "sentence_order_labels": Field("int32", "B"),  # 0: A is before B; 1: after it
            "sentence_order_weights": Field("float32", "B"),
        }
        return TOKENS | MASKED | PAIR | own

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_masked_pair(self, vocabulary, shares=("short_seq_prob",))
        if self.ngram < 1:
            raise ValueError(f"sentence_order: ngram={self.ngram}; an n-gram has 1 word or more")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[ChunkRows, BuildBatch]:
        """Return the table of rows and the function that builds batches.

        The keys draw the pairs and the masks. A document of a single token has an empty B; its
        order has a weight of 0.
        """
        read = TokenReader(split.tokens, vocabulary.size)
        masker = Masker(self, vocabulary, self.ngram)
        table = ChunkRows(split, self.length - 3)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            (a_start_B, a_B), (b_start_B, b_B), *_ = table.draw_halves(
                row_B, key_B, self.short_seq_prob
            )
            swap_B = draw_swaps(key_B)
            first = np.where(swap_B, b_start_B, a_start_B), np.where(swap_B, b_B, a_B)
            second = np.where(swap_B, a_start_B, b_start_B), np.where(swap_B, a_B, b_B)
            rows = lay_out_pairs(read, vocabulary, self.length, first, second)
            masked = masker(rows["token_ids"], rows["attention_mask"], key_B)
            return {
                **rows,
                **masked,
                "sentence_order_labels": swap_B.astype(np.int32),
                "sentence_order_weights": (b_B > 0).astype(np.float32),
            }

        return table, build_batch


def draw_swaps(key_B: np.ndarray) -> np.ndarray:
    """Draw the rows whose second segment comes first, half of them: bool [B]."""
    return hashing.bits_to_bools(
        hashing.draw_uint64(hashing.derive_keys(key_B, hashing.SWAP), 1)[:, 0], 0.5
    )
