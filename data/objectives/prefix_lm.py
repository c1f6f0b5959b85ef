"""Prefix language modelling: read the first part of a text, write the rest (Raffel et al. 2019, section 3.3.1).

B rows   L inputs   T targets
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import SEQ2SEQ
from data.inspection.causal import continuations
from data.inspection.rendering import part_row
from data.objectives.base import Objective
from data.objectives.masking import needs
from data.rows import hashing
from data.rows.tables import TokenReader, WindowRows


@dataclass(frozen=True)
class PrefixLm(Objective):
    """`length` tokens of text, cut after any of them but the last, all cuts alike likely, as in the paper's code.

    Both parts end with </s> and are padded to `length`, which the longer one may fill.
    """

    name: ClassVar[str] = "prefix_lm"
    description: ClassVar[str] = "the rest of a text ({length} tokens, cut anywhere)"
    length: int = 512  # L and T: tokens of text that make one example

    def dims(self):
        return {"L": self.length, "T": self.length}

    def spec(self):
        return SEQ2SEQ

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 2:
            raise ValueError(
                f"prefix_lm: length={self.length}; a text that is cut in two has 2 tokens at least"
            )
        needs(self.name, vocabulary, "eos", "pad")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, cut as the keys say."""
        read, table, column_L = (
            TokenReader(split.tokens, vocabulary.size),
            WindowRows(split, self.length),
            np.arange(self.length),
        )

        def part(start_B, length_B):
            """(ids, bool) [B, L] of `length_B` tokens and </s>."""
            ids_BL = np.where(
                column_L < length_B[:, None], read(start_B[:, None] + column_L), vocabulary.pad
            )
            ids_BL[np.arange(len(start_B)), length_B] = vocabulary.eos
            return ids_BL.astype(np.int32), column_L <= length_B[:, None]

        def build(row_B, key_B):
            start_B = table.starts(row_B)
            prefix_B = 1 + hashing.below(
                hashing.words(hashing.key(key_B, hashing.KEPT), 1)[:, 0], self.length - 1
            )
            inputs_BL, inputs_valid_BL = part(start_B, prefix_B)
            targets_BT, written_BT = part(start_B + prefix_B, self.length - prefix_B)
            return {
                "encoder_token_ids": inputs_BL,
                "encoder_attention_mask": inputs_valid_BL,
                "labels": targets_BT,
                "label_weights": written_BT.astype(np.float32),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        return continuations(stream, seen, token_id)

    def render(self, stream, seen, i):
        return part_row(stream, seen, i)
