"""Masked tokens and next-sentence prediction: does B follow A, or come from another document?

Devlin et al. (2018), section 3.1.

B rows   L row length   P masked positions of a row   A, B the two segments
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, PAIR, TOKENS, Field
from data.objectives.masking import Masker
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_masked_pair
from data.rows.sentence_pairs import SentencePairRows, lay_out_pairs
from data.rows.tables import Batch, TokenReader
from data.rows.words import WholeWords
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class SentencePair(WholeWords, Objective):
    """Rows `[CLS] A [SEP] B [SEP]`, masked as in `MaskedLm`.

    B follows A in its document or comes from another document.
    """

    name: ClassVar[str] = "sentence_pair"
    scored_tokens: ClassVar[str] = "known"
    description: ClassVar[str] = (
        "masked tokens ({mask_rate:.0%}) and next sentence "
        "({random_next:.0%} of the pairs are of two documents), rows of {length}"
    )
    checks: ClassVar[str] = "masked_objectives:check_masked_pairs"
    rendering: ClassVar[str] = "masked_objectives:render_masked_pair"
    gaps: ClassVar[str] = "masks"
    length: int = 128  # L: tokens of a row, special tokens included
    max_predictions: int = 20  # P: most masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all tokens of a word or none
    # 0: new draws every epoch; n: n fixed versions in turn (BERT's dupe_factor)
    dupe_factor: int = 0
    short_seq_prob: float = 0.1  # share of rows that aim at a random shorter length
    random_next: float = 0.5  # share of rows with a random B

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        own = {
            "next_sentence_labels": Field("int32", "B"),  # 0: B follows A; 1: another document
            "next_sentence_weights": Field("float32", "B"),
        }
        return TOKENS | MASKED | PAIR | own

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_masked_pair(self, vocabulary, shares=("short_seq_prob", "random_next"))

    def make_rows(
        self, split: Split, vocabulary: Vocabulary
    ) -> tuple[SentencePairRows, BuildBatch]:
        """Return the table of rows and the function that builds batches.

        The keys draw the pairs and the masks.
        """
        read, masker = TokenReader(split.tokens, vocabulary.size), Masker(self, vocabulary)
        table = SentencePairRows(split, self.length - 3)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            first, second, other_B = table.draw_pairs(
                row_B, key_B, self.short_seq_prob, self.random_next
            )
            rows = lay_out_pairs(read, vocabulary, self.length, first, second)
            masked = masker(rows["token_ids"], rows["attention_mask"], key_B)
            ones_B = np.ones(len(row_B), np.float32)
            return {
                **rows,
                **masked,
                "next_sentence_labels": other_B.astype(np.int32),
                "next_sentence_weights": ones_B,
            }

        return table, build_batch
