"""Causal language modelling: tell each token from all before it in its row (Radford et al. 2018, section 3.1).

B rows   L row length
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import CONTINUES, TOKEN_ID, Field
from data.inspection.causal import successions
from data.inspection.rendering import next_row
from data.objectives.base import Objective
from data.objectives.masked_rows import joined
from data.objectives.masking import needs
from data.rows.tables import TokenReader, WindowRows


@dataclass(frozen=True)
class CausalLm(Objective):
    """Rows of one stream of documents with the end-of-text token between them, as GPT-2 and GPT-3 read it.

    A row reads across its documents: "sequences with multiple documents are not masked in any special way", the end-of-text
    token tells the model that they are unrelated (Brown et al. 2020, appendix B). So there are no segments.
    """

    name: ClassVar[str] = "causal_lm"
    description: ClassVar[str] = "the next token, rows of {length} across documents"
    gaps: ClassVar[str] = "following"
    length: int = 1024  # L: tokens that a row reads; it is to tell the next of each
    end_of_text: bool = (
        True  # between documents; GPT (2018), whose vocabulary has no such token, read them without
    )
    # Whether rows are shuffled, or row i of a batch goes on where row i of the batch before ended, for a model that keeps a state. The
    # end of a source that fills no row is then left out of training.
    order: Literal["shuffled", "lanes"] = "shuffled"

    def dims(self):
        return {"L": self.length}

    def spec(self):
        keys = {
            "token_ids": Field("int32", "BL", TOKEN_ID),  # without padding
            "labels": Field("int32", "BL", TOKEN_ID),  # the tokens one place further on
            "label_weights": Field("float32", "BL"),
        }
        return keys | (CONTINUES if self.order == "lanes" else {})

    def check(self, vocabulary):
        """Raise a ValueError unless these settings make sense with this vocabulary."""
        if self.length < 1:
            raise ValueError(f"causal_lm: length={self.length}; a row reads 1 token at least")
        if self.end_of_text:
            needs(self.name, vocabulary, "eos")

    def examples(self, split, vocabulary):
        """(table of rows, build), where build(row_B, key_B) is the batch of those rows; nothing is drawn, so no key is used.

        A row ends with the token that the next one begins with, so that each token but a source's first is told once.
        """
        read, width = TokenReader(split.tokens, vocabulary.size), self.length + 1
        table = WindowRows(split, width, separated=self.end_of_text, shared=1)

        def build(row_B, key_B):
            row_BN = np.empty((len(row_B), width), np.int32)
            if self.end_of_text:
                joined(table, read, row_B, vocabulary.eos, row_BN)
            else:
                row_BN[:] = read.runs(table.starts(row_B), width)
            weights_BL = np.ones((len(row_B), self.length), np.float32)
            batch = {
                "token_ids": row_BN[:, :-1].copy(),
                "labels": row_BN[:, 1:].copy(),
                "label_weights": weights_BL,
            }
            if self.order == "lanes":
                batch["is_continued"] = ~np.isin(row_B, table.offsets)
            return batch

        return table, build

    def measure(self, stream, seen, token_id):
        return successions(stream, seen, token_id)

    def render(self, stream, seen, i):
        return next_row(stream, seen, i)
