"""Replaced token detection: a generator fills masked words, and which words are its own is to be told (Clark et al. 2020, section 2).

The words are drawn where the generator is, on the device; what decides the draws comes with the row, so that they too are a function
of seed and step.

B rows   L row length   P masked positions of a row
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import MASKED, SEGMENTS, TOKENS, Field
from data.inspection.masked import masks, replacements
from data.inspection.rendering import masked_row
from data.inspection.rows import texts
from data.objectives.base import Objective
from data.objectives.masked_rows import check_rows, masked_rows
from data.objectives.masking import Masker
from data.rows import hashing


@dataclass(frozen=True)
class ReplacedToken(Objective):
    """Rows of masked_lm in which every chosen word is a [MASK], for the generator to fill."""

    name: ClassVar[str] = "replaced_token"
    description: ClassVar[str] = (
        "replaced words (a generator fills {mask_rate:.0%} of the tokens, which are told from the text's), rows of {length}"
    )
    gaps: ClassVar[str] = "masks"
    whole_words: ClassVar[bool] = False
    length: int = 512  # L: tokens of a row, [CLS] and [SEP] included
    max_predictions: int = 77  # P: at most so many masked positions in a row
    mask_rate: float = (
        0.15  # share of a row's tokens that the generator fills; 0.25 for ELECTRA-large
    )
    dupe_factor: int = 0  # 0: new masks every epoch; n: n fixed masks in turn
    rows: Literal["documents", "windows", "sentences", "packed"] = (
        "packed"  # what a row is made of, as in masked_lm
    )

    def dims(self):
        return {"L": self.length, "P": self.max_predictions}

    def spec(self):
        own = {
            # From 0 to below 1: each draws the word that the generator puts there.
            "uniforms": Field("float32", "BP"),
            # 1.0 where there is a token, each of which the discriminator reads.
            "discriminator_weights": Field("float32", "BL"),
        }
        return TOKENS | MASKED | own | (SEGMENTS if self.rows == "packed" else {})

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        check_rows(self, vocabulary)

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, masked as the keys say, and the draws' chances."""
        table, masked = masked_rows(
            self, split, vocabulary, Masker(self, vocabulary, shares=(1.0, 0.0))
        )

        def build(row_B, key_B):
            rows = masked(row_B, key_B)
            chances_BP = hashing.fractions(hashing.key(key_B, hashing.FILL), self.max_predictions)
            return rows | {
                "uniforms": chances_BP,
                "discriminator_weights": rows["attention_mask"].astype(np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return [
            *masks(stream, seen, token_id, shares=(1.0, 0.0)),
            *texts(stream, seen),
            *replacements(seen),
        ]

    def render(self, stream, seen, i):
        return masked_row(stream, seen, i)
