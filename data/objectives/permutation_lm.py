"""Permutation language modelling: predict the last tokens of a random factorization order.

Yang et al. (2019), sections 2.2 and 2.3. The tokens that are predicted come last in the order, and
all others are their context ("partial prediction"). Each predicted token sees the context, and the
predicted ones before it in the order.

B rows   L row length   P predicted positions of a row   S spans of a row
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from data.batch_spec import CONTINUED, MASKED, PAIR, TOKENS, Field
from data.objectives.masked_rows import ROW_KINDS
from data.objectives.objective import BuildBatch, Objective
from data.objectives.permuting import Permuter
from data.objectives.setting_checks import check_special_tokens
from data.rows.frames import move_cls_last
from data.rows.sentence_pairs import SentencePairRows, lay_out_pairs
from data.rows.tables import Batch, TokenReader, WindowRows
from data.store.split import Split
from data.vocabulary.base import Vocabulary


@dataclass(frozen=True)
class PermutationLm(Objective):
    """Rows `A [SEP] [CLS]`, or of pairs `A [SEP] B [SEP] [CLS]`, with a factorization order.

    Spans of n tokens are predicted, one in each K n tokens.
    """

    name: ClassVar[str] = "permutation_lm"
    scored_tokens: ClassVar[str] = "known"
    description: ClassVar[str] = (
        "the last tokens of a random order (one in {partial}, spans of up to {max_span}, rows of "
        "{length})"
    )
    checks: ClassVar[str] = "factorization:check_permutations"
    rendering: ClassVar[str] = "factorization:render_permuted_row"
    gaps: ClassVar[str] = "masks"
    length: int = 512  # L: tokens of a row, special tokens included
    partial: int = 6  # K: one token in K is predicted
    max_span: int = 5  # most tokens of a span; length n has weight 1 / n
    # a row: one piece of a document, a window of the stream, full sentences of it, or two texts, of
    # which the second follows the first or is random
    rows: Literal["documents", "windows", "sentences", "pairs"] = "pairs"
    random_next: float = 0.5  # pairs: share with a random second text
    short_seq_prob: float = 0.0  # pairs: share that aim at a random shorter length
    # "lanes": row i of a batch continues row i of the batch before, for a model with a state; the
    # end of a source that fills no row is skipped; needs rows=windows.
    order: Literal["shuffled", "lanes"] = "shuffled"

    @property
    def num_special(self) -> int:
        """The number of special tokens that frame a row's text."""
        return 3 if self.rows == "pairs" else 2

    def axis_sizes(self) -> dict[str, int]:
        """Return {"L": the row length, "P": the number of predicted positions}."""
        return {"L": self.length, "P": max(1, (self.length - self.num_special) // self.partial)}

    def describe_batch(self) -> dict[str, Field]:
        """Return the fields of a batch."""
        return {
            **TOKENS,
            **(PAIR if self.rows == "pairs" else {}),
            "permutation_ranks": Field("int32", "BL"),
            **MASKED,
            **(CONTINUED if self.order == "lanes" else {}),
        }

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raise a ValueError unless these settings are valid with this vocabulary."""
        if self.partial < 2 or not 1 <= self.max_span <= self.length:
            raise ValueError(
                f"{self.name}: partial={self.partial}, max_span={self.max_span}; at most one token "
                f"in 2 is predicted, and a span has at least 1, and at most length={self.length}"
            )
        if self.length < self.num_special + 5:
            raise ValueError(
                f"{self.name}: length={self.length}; a row of rows={self.rows} has "
                f"{self.num_special} special tokens and at least 5 of text"
            )
        for name in ("random_next", "short_seq_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{self.name}: {name}={getattr(self, name)}; a share of rows must be between "
                    "0 and 1"
                )
        if self.order == "lanes" and self.rows != "windows":
            raise ValueError(
                f"{self.name}: order=lanes with rows={self.rows}; only windows of the stream of "
                "documents follow each other: set data.objective.rows=windows"
            )
        check_special_tokens(self.name, vocabulary, "cls", "sep", "pad")

    def make_rows(self, split: Split, vocabulary: Vocabulary) -> tuple[Any, BuildBatch]:
        """Return the table of rows and the function that builds batches.

        The keys draw the spans, the order, and the pairs.
        """
        permute = Permuter(vocabulary, self.axis_sizes()["P"], self.partial, self.max_span)
        if self.rows == "pairs":
            read = TokenReader(split.tokens, vocabulary.size)
            table: Any = SentencePairRows(split, self.length - 3)
        else:
            table, lay_out = ROW_KINDS[self.rows](split, self.length, vocabulary)

        def build_batch(row_B: np.ndarray, key_B: np.ndarray) -> Batch:
            if self.rows == "pairs":
                first, second, _ = table.draw_pairs(
                    row_B, key_B, self.short_seq_prob, self.random_next
                )
                rows = lay_out_pairs(read, vocabulary, self.length, first, second)
            else:
                rows = lay_out(row_B)
            rows = move_cls_last(rows)
            batch = rows | permute(rows["token_ids"], rows["attention_mask"], key_B)
            if self.order == "lanes":
                batch["is_continued"] = table.find_continued_rows(row_B)
            return batch

        return table, build_batch

    def drop_repeats(self, table: Any, batch: Batch, row_B: np.ndarray, key_B: np.ndarray) -> None:
        """Set to 0 the weights of tokens that are in another row as well."""
        if isinstance(table, WindowRows):
            own_BL = np.pad(table.mark_own_tokens(row_B), ((0, 0), (0, 2)), constant_values=True)
            batch["label_weights"] *= np.take_along_axis(own_BL, batch["masked_positions"], axis=1)
