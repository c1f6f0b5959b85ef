"""Masked next-token prediction: predict a masked token at the position before it.

Charpentier and Samuel (2024), section 3.1. The model attends to the row in both directions, and its
output has the same meaning as in a causal language model: the next token. So one model can learn
both objectives, which `data.mixed` mixes.

B rows   L row length   P masked positions of a row
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from data.batch_spec import MASKED, TOKENS, Field
from data.inspection.causal import told
from data.inspection.checks import Check, RowStream, Seen, none
from data.inspection.masked import masks
from data.inspection.rendering import masked_row
from data.objectives.base import BuildBatch, Objective, TokenId
from data.objectives.masked_rows import joined
from data.objectives.masking import Masker
from data.objectives.setting_checks import check_masking
from data.rows.tables import Batch, TokenReader, WindowRows, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class MaskedNextToken(Objective):
    """Rows of one stream of documents, as in CausalLm, with the end-of-text token in front.

    Thanks to that token, every masked token has a position before it. `masked_positions` are these
    positions.
    """

    name: ClassVar[str] = "masked_next_token"
    description: ClassVar[str] = (
        "masked tokens, each predicted at the position before it "
        "({mask_rate:.0%} of the tokens, rows of {length})"
    )
    gaps: ClassVar[str] = "masks_ahead"
    length: int = 1024  # L: tokens of a row, the end-of-text token in front included
    max_predictions: int = 154  # P: largest number of masked tokens in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all tokens of a word or none
    dupe_factor: int = 0  # 0: a new mask every epoch; n: n fixed masks in turn

    def dims(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of masked positions}."""
        return {"L": self.length, "P": self.max_predictions}

    def spec(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return TOKENS | MASKED

    def check(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 2:
            raise ValueError(
                f"{self.name}: length={self.length}; "
                "a row has an end-of-text token and text, so at least 2 tokens"
            )
        check_masking(self, vocabulary, self.length - 1, roles=("eos", "mask"))

    def examples(self, split: Split, vocabulary: Vocabulary) -> tuple[WindowRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; keys draw the masks."""
        read = TokenReader(split.tokens, vocabulary.size)
        table = WindowRows(split, self.length - 1, separated=True)
        masker, eos = Masker(self, vocabulary), require_id(vocabulary.eos)

        def build(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            tokens_BL = np.full((len(row_B), self.length), eos, np.int32)
            joined(table, read, row_B, eos, tokens_BL[:, 1:])
            mask_BL = np.ones(tokens_BL.shape, bool)
            masked = masker(tokens_BL, mask_BL, key_B)
            return {
                "token_ids": tokens_BL,
                "attention_mask": mask_BL,
                **masked,
                "masked_positions": np.maximum(masked["masked_positions"] - 1, 0),
            }

        return table, build

    def measure(self, stream: RowStream, seen: Sequence[Seen], token_id: TokenId) -> list[Check]:
        """Return checks of the masks and of the rows' text."""
        table: WindowRows = stream.table
        eos = require_id(stream.vocabulary.eos)
        restored = [
            inspected._replace(batch=shift_positions(inspected.batch)) for inspected in seen
        ]
        other_text = misplaced = 0
        for inspected in restored:
            _, first_B = table.separators(table.starts(inspected.row_B))
            batch = inspected.batch
            for b, first in enumerate(first_B.tolist()):
                row, used = batch["token_ids"][b].copy(), batch["label_weights"][b] > 0
                row[batch["masked_positions"][b, used]] = batch["labels"][b, used]
                text_holds, separators_hold = told(
                    row[1:], first, stream.split.tokens, stream.split.document_starts, eos
                )
                other_text += row[0] != eos or not text_holds
                misplaced += not separators_hold
        return [
            *masks(stream, restored, token_id, roles=("eos", "mask")),
            none("rows whose text is not the store's", other_text),
            none("rows with documents not separated", misplaced),
        ]

    def render(self, stream: RowStream, seen: Seen, i: int) -> dict[str, Any]:
        """Return row i in readable form: its tokens and what is predicted."""
        return masked_row(stream, seen._replace(batch=shift_positions(seen.batch)), i)


def shift_positions(batch: Batch) -> Batch:
    """Return the batch with the positions of the masked tokens in place of those before them."""
    used_BP = batch["label_weights"] > 0
    return batch | {"masked_positions": batch["masked_positions"] + used_BP}
