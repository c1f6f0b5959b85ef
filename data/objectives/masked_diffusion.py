"""Masked diffusion: hide any share of a text, and predict what is hidden.

Sahoo et al. (2024, MDLM), section 3; Nie et al. (2025, LLaDA), section 2. A row has a mask rate t
between 0 and 1. Each of its tokens becomes [MASK] with probability t, and a masked token counts
1 / t. The mean over t bounds the negative log-likelihood of the text from above.

The rates of a batch are spread evenly, so that each batch has seen all rates alike. An evaluation
masks exactly k of a row's n tokens, k spread evenly over 1 to n from row to row, and each counts
n / k. Its mean is the same, with less noise.

B rows   N batches   L row length   P = L - 2 masked positions of a row, at most   M masked tokens
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from data.batch_spec import MASKED, SEGMENTS, TOKENS, Field
from data.objectives.masked_rows import (
    MaskedTexts,
    check_strands,
    drop_repeated_masks,
    make_text_rows,
)
from data.objectives.masking import UNUSED, count_true, fill_slots
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows import hashing
from data.rows.tables import Batch, RowTable, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class MaskedDiffusion(MaskedTexts, Objective):
    """Rows of masked_lm in which any share of the tokens is [MASK].

    With `least_rate` equal to `most_rate`, the loss is BERT's at that rate, with [MASK] alone.
    """

    name: ClassVar[str] = "masked_diffusion"
    trains_as: ClassVar[str] = "masked_lm"
    scored_tokens: ClassVar[str] = "known"
    masks_any_share: ClassVar[bool] = True
    description: ClassVar[str] = (
        "masked diffusion (from {least_rate:.1%} to {most_rate:.0%} of the tokens masked, "
        "rows of {length})"
    )
    checks: ClassVar[str] = "diffusion:check_diffused_texts"
    rendering: ClassVar[str] = "rendering:render_masked_row"
    gaps: ClassVar[str] = "masks"
    length: int = 128  # L: tokens of a row, special tokens included
    # least mask rate of a training row; LLaDA's keeps the weight of a token at 1,000 or less
    least_rate: float = 0.001
    most_rate: float = 1.0  # largest mask rate of a training row

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of positions that can be masked}."""
        return {"L": self.length, "P": self.length - 2}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        # 1.0 at each token that can be masked, whether it is or not; their sum divides the loss.
        own = {"text_weights": Field("float32", "BL")}
        return TOKENS | MASKED | own | (SEGMENTS if self.rows == "packed" else {})

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 3:
            raise ValueError(
                f"{self.name}: length={self.length}; "
                "a row holds [CLS], text and [SEP], so at least 3 tokens"
            )
        if not 0 < self.least_rate <= self.most_rate <= 1:
            raise ValueError(
                f"{self.name}: least_rate={self.least_rate:g}, most_rate={self.most_rate:g}; "
                "mask rates are above 0 and at most 1, and the least is not above the most"
            )
        check_special_tokens(self.name, vocabulary, "cls", "sep", "mask", "pad")
        check_strands(self, vocabulary)

    def draw_rates(self, key_N: np.ndarray, place_B: np.ndarray) -> np.ndarray:
        """Return rates [N, B]: evenly spaced within a batch, from a random first one."""
        first_N1 = hashing.draw_uniforms(key_N, 1).astype(np.float64)
        return self.least_rate + (self.most_rate - self.least_rate) * ((first_N1 + place_B) % 1)

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[RowTable, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the masks."""
        table, lay_out = make_text_rows(self, split, vocabulary)
        ordinary_N, mask_id = ~np.asarray(vocabulary.special), require_id(vocabulary.mask)

        def build_batch(
            row_B: np.ndarray, key_B: np.ndarray, rate_B: np.ndarray | None = None
        ) -> Batch:
            rows = lay_out(row_B, key_B)
            tokens_BL = rows["token_ids"]
            candidate_BL = np.take(ordinary_N, tokens_BL) & rows["attention_mask"]
            order_BL = hashing.shuffle_columns(
                hashing.derive_keys(key_B, hashing.ORDER), self.length
            )
            if rate_B is None:
                count_B = count_true(candidate_BL)
                number_B = np.minimum(1 + spread_over_rows(row_B, count_B), count_B)
                masked_BL = choose_first(candidate_BL, order_BL, number_B)
                weight_B = count_B / np.maximum(number_B, 1)
            else:
                masked_BL = candidate_BL & (order_BL < rate_B[:, None] * 2.0**32)
                weight_B = 1 / rate_B
            used_BP = np.arange(self.length - 2) < count_true(masked_BL)[:, None]
            position_M = np.flatnonzero(masked_BL)
            flat = tokens_BL.reshape(-1)  # a view
            labels_M = flat[position_M]
            flat[position_M] = mask_id
            return rows | {
                "masked_positions": fill_slots(used_BP, position_M % self.length),
                "labels": fill_slots(used_BP, labels_M),
                "label_weights": (used_BP * weight_B[:, None]).astype(np.float32),
                "text_weights": candidate_BL.astype(np.float32),
            }

        return table, build_batch

    def drop_repeats(self, table: Any, batch: Batch, row_B: np.ndarray, key_B: np.ndarray) -> None:
        """Set to 0 the weights of tokens that are in another row as well."""
        drop_repeated_masks(table, batch, row_B)


def spread_over_rows(row_B: np.ndarray, count_B: np.ndarray) -> np.ndarray:
    """Return an integer in [0, count) for each row: int64 [B].

    Multiples of the golden ratio, modulo 1, fill the unit interval evenly from any row on.
    """
    return hashing.bits_to_ints(np.asarray(row_B).astype(np.uint64) * hashing.GAMMA, count_B)


def choose_first(
    candidate_BL: np.ndarray, order_BL: np.ndarray, number_B: np.ndarray
) -> np.ndarray:
    """Return the first `number_B` candidates of each row in the given order: bool [B, L]."""
    order_BL = np.where(candidate_BL, order_BL, UNUSED)
    last_B = np.sort(order_BL, axis=1)[np.arange(len(order_BL)), np.maximum(number_B, 1) - 1]
    return candidate_BL & (order_BL <= last_B[:, None])
