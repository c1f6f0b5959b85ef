"""Replaced token detection: find the tokens with which a generator has replaced masked ones.

Clark et al. (2020), section 2. The generator reads [MASK] at every chosen position; in the released
code 15 % of them stay as they are. The replacements are drawn on the device, with the generator.
The uniform numbers that decide the draws come with the batch, so that the replacements, too, depend
on seed and step alone.

B rows   L row length   P masked positions of a row
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, SEGMENTS, TOKENS, Field
from data.objectives.masked_rows import (
    MaskedTexts,
    check_rows,
    drop_repeated_masks,
    make_masked_rows,
)
from data.objectives.masking import Masker
from data.objectives.objective import BuildBatch, Objective
from data.rows import hashing
from data.rows.tables import Batch, RowTable
from data.rows.words import WholeWords
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class ReplacedToken(WholeWords, MaskedTexts, Objective):
    """Rows of masked_lm in which every chosen token becomes [MASK], for the generator to fill."""

    name: ClassVar[str] = "replaced_token"
    description: ClassVar[str] = (
        "replaced tokens (a generator fills {mask_rate:.0%} of the tokens, "
        "a discriminator detects them), rows of {length}"
    )
    checks: ClassVar[str] = "masked_objectives:check_replaced_texts"
    rendering: ClassVar[str] = "rendering:render_masked_row"
    gaps: ClassVar[str] = "masks"
    length: int = 512  # L: tokens of a row, special tokens included
    max_predictions: int = 77  # P: most masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that the generator fills; ELECTRA-large: 0.25
    whole_words: bool = False  # mask all tokens of a word or none
    # most consecutive words masked together; n words have weight 1 / n. Above 1 needs whole words
    ngram: int = 1
    # 0: new draws every epoch; n: n fixed versions in turn (BERT's dupe_factor)
    dupe_factor: int = 0

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        own = {
            # In [0, 1): each draws the token that the generator puts at a masked position.
            "uniforms": Field("float32", "BP"),
            # 1.0 at real tokens, all of which the discriminator classifies.
            "discriminator_weights": Field("float32", "BL"),
        }
        return TOKENS | MASKED | own | (SEGMENTS if self.rows == "packed" else {})

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        check_rows(self, vocabulary)
        if self.ngram < 1 or (self.ngram > 1 and not self.whole_words):
            raise ValueError(
                f"replaced_token: ngram={self.ngram} and whole_words={self.whole_words}; an n-gram "
                "has 1 word or more, and consists of whole words"
            )

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Return the table of rows and the function that builds batches.

        The keys draw the masks and the uniform numbers.
        """
        masker = Masker(self, vocabulary, self.ngram, shares=(1.0, 0.0))
        table, masked = make_masked_rows(self, split, vocabulary, masker)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            rows = masked(row_B, key_B)
            uniforms_BP = hashing.draw_uniforms(
                hashing.derive_keys(key_B, hashing.FILL), self.max_predictions
            )
            return rows | {
                "uniforms": uniforms_BP,
                "discriminator_weights": rows["attention_mask"].astype(np.float32),
            }

        return table, build_batch

    def drop_repeats(
        self, table: RowTable, batch: Batch, row_B: np.ndarray, key_B: np.ndarray
    ) -> None:
        """Set to 0 the weights of tokens that are in another row as well."""
        drop_repeated_masks(table, batch, row_B)
