"""Masked next-token prediction: a masked word is predicted at the position before it (Charpentier and Samuel 2024, section 3.1).

The model reads the row from both sides, and its output has the same meaning as in a causal language model: what comes next. So one
model may learn both, which `data.mixed` mixes.

B rows   L row length   N = L - 1 tokens of text   P masked positions of a row
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from data.batch_spec import MASKED, TOKENS
from data.inspection.causal import told
from data.inspection.checks import none
from data.inspection.masked import masks
from data.inspection.rendering import masked_row
from data.objectives.base import Objective
from data.objectives.masked_rows import joined
from data.objectives.masking import Masker, check_masking
from data.rows.tables import TokenReader, WindowRows


@dataclass(frozen=True)
class MaskedNextToken(Objective):
    """Rows of one stream of documents, as CausalLm has them, with an end-of-text token first, that masked words may be predicted of.

    `masked_positions` are those before the masked words.
    """

    name: ClassVar[str] = "masked_next_token"
    description: ClassVar[str] = (
        "masked words, each predicted at the position before it ({mask_rate:.0%} of the tokens, rows of {length})"
    )
    gaps: ClassVar[str] = "masks_ahead"
    length: int = 1024  # L: tokens of a row, the end-of-text token before them included
    max_predictions: int = 154  # P: at most so many masked words in a row
    mask_rate: float = 0.15  # share of a row's tokens that are predicted
    whole_words: bool = False  # mask all the pieces of a word or none
    dupe_factor: int = 0  # 0: a new mask every epoch; n: n fixed masks in turn

    def dims(self):
        return {"L": self.length, "P": self.max_predictions}

    def spec(self):
        return TOKENS | MASKED

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 2:
            raise ValueError(
                f"{self.name}: length={self.length}; a row has an end-of-text token and text, so 2 at least"
            )
        check_masking(self, vocabulary, self.length - 1, roles=("eos", "mask"))

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows, masked as the keys say."""
        read, table = (
            TokenReader(split.tokens, vocabulary.size),
            WindowRows(split, self.length - 1, separated=True),
        )
        masker = Masker(self, vocabulary)

        def build(row_B, key_B):
            tokens_BL = np.full((len(row_B), self.length), vocabulary.eos, np.int32)
            joined(table, read, row_B, vocabulary.eos, tokens_BL[:, 1:])
            mask_BL = np.ones(tokens_BL.shape, bool)
            masked = masker(tokens_BL, mask_BL, key_B)
            return {
                "token_ids": tokens_BL,
                "attention_mask": mask_BL,
                **masked,
                "masked_positions": np.maximum(masked["masked_positions"] - 1, 0),
            }

        return table, build

    def measure(self, stream, seen, token_id):
        words = [each._replace(batch=shift_positions(each.batch)) for each in seen]
        other_text = misplaced = 0
        for each in words:
            _, first_B = stream.table.separators(stream.table.starts(each.row_B))
            batch = each.batch
            for b, first in enumerate(first_B.tolist()):
                row, used = batch["token_ids"][b].copy(), batch["label_weights"][b] > 0
                row[batch["masked_positions"][b, used]] = batch["labels"][b, used]
                text_holds, separators_hold = told(
                    row[1:],
                    first,
                    stream.split.tokens,
                    stream.split.document_starts,
                    stream.vocabulary.eos,
                )
                other_text += row[0] != stream.vocabulary.eos or not text_holds
                misplaced += not separators_hold
        return [
            *masks(stream, words, token_id, roles=("eos", "mask")),
            none("rows whose text is not the store's", other_text),
            none("rows with documents not separated", misplaced),
        ]

    def render(self, stream, seen, i):
        return masked_row(stream, seen._replace(batch=shift_positions(seen.batch)), i)


def shift_positions(batch):
    """Return the batch with the positions of the masked words themselves, in place of those before them."""
    used_BP = batch["label_weights"] > 0
    return batch | {"masked_positions": batch["masked_positions"] + used_BP}
