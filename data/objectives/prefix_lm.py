"""Prefix language modelling: read the first part of a text, write the rest.

Raffel et al. (2019), section 3.3.1.

B rows   L input length   T target length
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import SEQ2SEQ, Field
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows import hashing
from data.rows.tables import Batch, TokenReader, WindowRows, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class PrefixLm(Objective):
    """Texts of `length` tokens, cut after any token but the last with equal probability.

    The paper's code cuts so. Both parts end with </s> and are padded to `length`.
    """

    name: ClassVar[str] = "prefix_lm"
    scored_tokens: ClassVar[str] = "all"
    description: ClassVar[str] = "the rest of a text ({length} tokens, cut anywhere)"
    checks: ClassVar[str] = "causal:check_prefixes"
    rendering: ClassVar[str] = "rendering:render_unpadded_row"
    length: int = 512  # L and T: tokens of text in one example

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the input length, "T": the target length}."""
        return {"L": self.length, "T": self.length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return SEQ2SEQ

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 2:
            raise ValueError(
                f"prefix_lm: length={self.length}; a text that is cut in two has at least 2 tokens"
            )
        check_special_tokens(self.name, vocabulary, "eos", "pad")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[WindowRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys draw the cuts."""
        read = TokenReader(split.tokens, vocabulary.size)
        table = WindowRows(split, self.length)
        column_L = np.arange(self.length)
        eos, pad = require_id(vocabulary.eos), require_id(vocabulary.pad)

        def build_part(start_B: np.ndarray, length_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Return (ids, mask) [B, L] of `length_B` tokens and </s>."""
            ids_BL = np.where(column_L < length_B[:, None], read(start_B[:, None] + column_L), pad)
            ids_BL[np.arange(len(start_B)), length_B] = eos
            return ids_BL.astype(np.int32), column_L <= length_B[:, None]

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            start_B = table.locate_starts(row_B)
            prefix_B = self.draw_prefix_lengths(key_B)
            input_BL, input_mask_BL = build_part(start_B, prefix_B)
            label_BT, label_mask_BT = build_part(start_B + prefix_B, self.length - prefix_B)
            return {
                "encoder_token_ids": input_BL,
                "encoder_attention_mask": input_mask_BL,
                "labels": label_BT,
                "label_weights": label_mask_BT.astype(np.float32),
            }

        return table, build_batch

    def draw_prefix_lengths(self, key_B: np.ndarray) -> np.ndarray:
        """Draw the number of tokens before the cut of each row: int64 [B]."""
        bits_B = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.UNMASKED_LENGTHS), 1)[:, 0]
        return 1 + hashing.bits_to_ints(bits_B, self.length - 1)

    def drop_repeats(
        self, table: WindowRows, batch: Batch, row_B: np.ndarray, key_B: np.ndarray
    ) -> None:
        """Set to 0 the weights of tokens that are in another row as well, but not of </s>."""
        column_BL = self.draw_prefix_lengths(key_B)[:, None] + np.arange(self.length)
        own_BL = np.pad(table.mark_own_tokens(row_B), ((0, 0), (0, 1)), constant_values=True)
        batch["label_weights"] *= np.take_along_axis(
            own_BL, np.minimum(column_BL, self.length), axis=1
        )
