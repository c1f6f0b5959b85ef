"""Causal language modelling: predict each token from the tokens before it.

Radford et al. (2018), section 3.1.

B rows   L row length   N = L + 1 tokens read
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from data.batch_spec import CONTINUED, SEGMENTS, TOKEN_ID, Field
from data.objectives.masked_rows import read_joined_rows
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens, check_zero_state_rate
from data.rows.tables import Batch, TokenReader, WindowRows, require_id
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class CausalLm(Objective):
    """Rows of one stream of documents with the end-of-text token between them, as in GPT-2 and 3.

    A row reads across its documents, which the end-of-text token separates (Brown et al. 2020,
    appendix B), unless `separate_documents` is set.
    """

    name: ClassVar[str] = "causal_lm"
    scored_tokens: ClassVar[str] = "all"
    description: ClassVar[str] = "the next token, rows of {length} across documents"
    checks: ClassVar[str] = "causal:check_next_tokens"
    rendering: ClassVar[str] = "rendering:render_next_token_row"
    gaps: ClassVar[str] = "following"
    joins_texts: ClassVar[bool] = True
    length: int = 1024  # L: tokens of a row; each predicts the next
    # an end-of-text token separates documents; false for GPT (2018), whose vocabulary has none
    end_of_text: bool = True
    # "lanes": row i of a batch continues row i of the batch before, for a model with a state; the
    # end of a source that fills no row is skipped.
    order: Literal["shuffled", "lanes"] = "shuffled"
    # on lanes: attention and state restart with each document, at its end-of-text token
    separate_documents: bool = False
    # probability that a training row on lanes begins with a state of zeros
    zero_state_rate: float = 0.0

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length}."""
        return {"L": self.length}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        keys = {
            "token_ids": Field("int32", "BL", TOKEN_ID),  # without padding
            "labels": Field("int32", "BL", TOKEN_ID),  # the next token at each position
            "label_weights": Field("float32", "BL"),
        }
        if self.order != "lanes":
            return keys
        return keys | (SEGMENTS if self.separate_documents else {}) | CONTINUED

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.length < 1:
            raise ValueError(f"causal_lm: length={self.length}; a row has at least 1 token")
        if self.separate_documents and not (self.order == "lanes" and self.end_of_text):
            raise ValueError(
                f"causal_lm: separate_documents=true with order={self.order} and end_of_text="
                f"{str(self.end_of_text).lower()}; it needs rows that follow each other, and a "
                "token between documents: set data.objective.order=lanes "
                "data.objective.end_of_text=true"
            )
        check_zero_state_rate(self)
        if self.end_of_text:
            check_special_tokens(self.name, vocabulary, "eos")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[WindowRows, BuildBatch]:
        """Return the table of rows and the function that builds batches; the keys draw nothing.

        The last token of a row is also the first of the next, so each token of a source but the
        first is predicted once.
        """
        read, width = TokenReader(split.tokens, vocabulary.size), self.length + 1
        table = WindowRows(split, width, separated=self.end_of_text, shared=1)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            row_BN = np.empty((len(row_B), width), np.int32)
            if self.end_of_text:
                read_joined_rows(table, read, row_B, key_B, require_id(vocabulary.eos), row_BN)
            else:
                row_BN[:] = read.read_runs(table.locate_starts(row_B), width)
            weights_BL = np.ones((len(row_B), self.length), np.float32)
            batch = {
                "token_ids": row_BN[:, :-1].copy(),
                "labels": row_BN[:, 1:].copy(),
                "label_weights": weights_BL,
            }
            if self.order == "lanes":
                batch |= self.mark_documents(table, row_B)
            return batch

        return table, build_batch

    def mark_documents(self, table: WindowRows, row_B: np.ndarray) -> Batch:
        """Return which rows continue those before and, of separate documents, the segment ids."""
        is_continued = table.find_continued_rows(row_B)
        if not self.separate_documents:
            return {"is_continued": is_continued}
        separator_BN, _ = table.find_separators(table.locate_starts(row_B))
        begins_BL = separator_BN[:, :-1]  # where a document begins: its end-of-text token
        later_BL = np.pad(begins_BL[:, 1:], ((0, 0), (1, 0)))
        segment_ids = 1 + np.cumsum(later_BL, axis=1, dtype=np.int32)
        return {"segment_ids": segment_ids, "is_continued": is_continued & ~begins_BL[:, 0]}

    def drop_repeats(
        self, table: WindowRows, batch: Batch, row_B: np.ndarray, key_B: np.ndarray
    ) -> None:
        """Set to 0 the weights of tokens that another row predicts as well."""
        batch["label_weights"] *= table.mark_own_tokens(row_B)[:, 1:]
