"""Masked next-token prediction: predict a masked token at the position before it.

Charpentier and Samuel (2024), section 3.1. The model attends to the row in both directions, and its
output has the same meaning as in a causal language model: the next token. So one model can learn
both objectives, which `data.mixed` mixes.

B rows   L row length   P masked positions of a row
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, TOKENS, Field
from data.objectives.masked_rows import read_joined_rows
from data.objectives.masking import Masker
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_masking
from data.rows.ramp import CONSTANT, Ramp
from data.rows.tables import Batch, TokenReader, WindowRows, require_id
from data.rows.words import WholeWords
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class MaskedNextToken(WholeWords, Objective):
    """Rows of one stream of documents, as in CausalLm, with the end-of-text token in front.

    `masked_positions` are the positions before the masked tokens.
    """

    name: ClassVar[str] = "masked_next_token"
    scored_tokens: ClassVar[str] = "known"
    description: ClassVar[str] = (
        "masked tokens, each predicted at the position before it "
        "({mask_rate:.0%} of the tokens, rows of {length})"
    )
    checks: ClassVar[str] = "masked_objectives:check_shifted_masks"
    rendering: ClassVar[str] = "masked_objectives:render_shifted_masks"
    gaps: ClassVar[str] = "masks_ahead"
    joins_texts: ClassVar[bool] = True
    length: int = 1024  # L: tokens of a row, special tokens included
    max_predictions: int = 154  # P: most masked positions in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    # change of `mask_rate` over the steps of training; held-out rows have `mask_rate`
    mask_ramp: Ramp = CONSTANT
    whole_words: bool = False  # mask all tokens of a word or none
    # 0: new draws every epoch; n: n fixed versions in turn (BERT's dupe_factor)
    dupe_factor: int = 0

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return TOKENS | MASKED

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 2:
            raise ValueError(
                f"{self.name}: length={self.length}; "
                "a row has an end-of-text token and text, so at least 2 tokens"
            )
        check_masking(self, vocabulary, self.length - 1, roles=("eos", "mask"))

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[WindowRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the masks."""
        read = TokenReader(split.tokens, vocabulary.size)
        table = WindowRows(split, self.length - 1, separated=True)
        masker, eos = Masker(self, vocabulary), require_id(vocabulary.eos)

        def build_batch(
            row_B: np.ndarray, key_B: np.ndarray, rate_B: np.ndarray | None = None
        ) -> Batch:
            tokens_BL = np.full((len(row_B), self.length), eos, np.int32)
            read_joined_rows(table, read, row_B, key_B, eos, tokens_BL[:, 1:])
            mask_BL = np.ones(tokens_BL.shape, bool)
            masked = masker(tokens_BL, mask_BL, key_B, rate_B)
            return {
                "token_ids": tokens_BL,
                "attention_mask": mask_BL,
                **masked,
                "masked_positions": np.maximum(masked["masked_positions"] - 1, 0),
            }

        return table, build_batch

    def drop_repeats(
        self, table: WindowRows, batch: Batch, row_B: np.ndarray, key_B: np.ndarray
    ) -> None:
        """Set to 0 the weights of masked tokens that are in another row as well."""
        # The position before a masked token, from the end-of-text token on, is the token's number
        # in the text.
        own_BN = table.mark_own_tokens(row_B)
        batch["label_weights"] *= np.take_along_axis(own_BN, batch["masked_positions"], axis=1)
