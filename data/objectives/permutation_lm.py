"""Permutation language modelling: predict the last tokens of a random factorization order.

Yang et al. (2019), sections 2.2 and 2.3. The tokens that are predicted come last in the order, and
all others are their context ("partial prediction"). Each predicted token sees the context, and the
predicted ones before it in the order.

B rows   L row length   P predicted positions of a row   M predicted tokens of the batch
S spans of a row   N lengths of a span   E = L + 1 edges
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from data.batch_spec import CONTINUED, MASKED, PAIR, TOKENS, Field
from data.objectives.masked_rows import ROW_KINDS
from data.objectives.masking import fill_slots
from data.objectives.objective import BuildBatch, Objective
from data.objectives.setting_checks import check_special_tokens
from data.rows import hashing
from data.rows.frames import move_cls_last
from data.rows.sentence_pairs import SentencePairRows, lay_out_pairs
from data.rows.tables import Batch, TokenReader, WindowRows
from data.store.split import Split
from data.vocabulary.base import Vocabulary


class Permuter:
    """Draws the predicted spans and the factorization order of rows."""

    def __init__(
        self, vocabulary: Vocabulary, num_predictions: int, partial: int, max_span: int
    ) -> None:
        """Prepare to draw.

        Args:
          num_predictions: P, the number of predicted positions that a batch has room for.
          partial: K, at least 2; one token in so many is predicted.
        """
        self.is_special = np.asarray(vocabulary.special)
        self.num_predictions, self.partial = num_predictions, partial
        weights_N = 1 / np.arange(1, max_span + 1)
        self.cumulative_N = np.cumsum(weights_N) / weights_N.sum()

    def __call__(self, tokens_BL: np.ndarray, mask_BL: np.ndarray, key_B: np.ndarray) -> Batch:
        """Return the predicted positions, their labels and weights, and the ranks of all tokens.

        A row of n tokens of text has n // K predicted ones, at least one and at most n - 1: a
        prediction without any context would be the mean of all values. The predicted tokens and the
        special ones take the ranks 1, 2, ... in a random order, as in the authors' code; the
        other tokens are the context, of rank 0.

        Returns:
          {"permutation_ranks" [B, L], "masked_positions", "labels", "label_weights" [B, P]}.
        """
        special_BL = self.is_special[tokens_BL]
        predicted_BL = self.choose_spans(mask_BL & ~special_BL, key_B)
        number_B = predicted_BL.sum(axis=1)
        used_BP = np.arange(self.num_predictions) < number_B[:, None]
        position_M = np.nonzero(predicted_BL)[1]
        return {
            "permutation_ranks": rank_tokens(predicted_BL | (special_BL & mask_BL), key_B),
            "masked_positions": fill_slots(used_BP, position_M),
            "labels": fill_slots(used_BP, tokens_BL[predicted_BL]),
            "label_weights": used_BP.astype(np.float32),
        }

    def choose_spans(self, text_BL: np.ndarray, key_B: np.ndarray) -> np.ndarray:
        """Return which tokens of text are predicted: bool [B, L].

        The text is cut into contexts of K n tokens; in each, a span of n tokens at a random place
        is predicted. What the contexts leave over, fewer than K tokens, is at both ends.
        """
        B, L = text_BL.shape
        length_B = text_BL.sum(axis=1)
        goal_B = np.clip(length_B // self.partial, 1, np.maximum(length_B - 1, 0))
        S = self.num_predictions
        draws_BS = hashing.draw_uniforms(hashing.derive_keys(key_B, hashing.SPAN_LENGTHS), S)
        span_BS = 1 + np.searchsorted(self.cumulative_N, draws_BS, side="right")
        span_BS = np.minimum(span_BS, len(self.cumulative_N))
        end_BS = np.minimum(np.cumsum(span_BS, axis=1), goal_B[:, None])
        span_BS = np.diff(end_BS, axis=1, prepend=0)
        context_BS = np.minimum(self.partial * span_BS, length_B[:, None])
        # The first draw gives the place where the first context begins.
        bits = hashing.draw_uint64(hashing.derive_keys(key_B, hashing.SPAN_STARTS), S + 1)
        shift_bits_B, place_bits_BS = bits[:, 0], bits[:, 1:]
        left_over_B = length_B - context_BS.sum(axis=1)
        shift_B = hashing.bits_to_ints(shift_bits_B, left_over_B + 1)
        inside_BS = hashing.bits_to_ints(place_bits_BS, context_BS - span_BS + 1)
        start_BS = shift_B[:, None] + np.cumsum(context_BS, axis=1) - context_BS + inside_BS
        # +1 where a span begins and -1 after it; the running sum is 1 inside spans.
        edges_BN, row_B1 = np.zeros((B, L + 1), np.int32), np.arange(B)[:, None]
        np.add.at(edges_BN, (row_B1, start_BS), (span_BS > 0).astype(np.int32))
        np.add.at(edges_BN, (row_B1, start_BS + span_BS), -(span_BS > 0).astype(np.int32))
        within_BL = np.cumsum(edges_BN, axis=1)[:, :L] > 0  # by number among the tokens of text
        number_BL = np.maximum(np.cumsum(text_BL, axis=1) - 1, 0)
        return text_BL & np.take_along_axis(within_BL, number_BL, axis=1)


def rank_tokens(ordered_BL: np.ndarray, key_B: np.ndarray) -> np.ndarray:
    """Return the ranks 1, 2, ... of the tokens `ordered_BL` in a random order, 0 for others: int32.

    All orders are equally likely.
    """
    L = ordered_BL.shape[1]
    order_BL = hashing.shuffle_columns(hashing.derive_keys(key_B, hashing.FACTORIZATION), L)
    np.copyto(order_BL, np.uint32(0xFFFFFFFF), where=~ordered_BL)
    column_BL = np.argsort(order_BL, axis=1, kind="stable")
    ranks_BL = np.empty(ordered_BL.shape, np.int32)
    np.put_along_axis(ranks_BL, column_BL, np.arange(1, L + 1, dtype=np.int32)[None], axis=1)
    return np.where(ordered_BL, ranks_BL, np.int32(0))


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
    # a row: one piece of a document, a crop of it (another in each epoch), a window of the stream,
    # full sentences of it, or two texts, of which the second follows the first or is random
    rows: Literal["documents", "crops", "windows", "sentences", "pairs"] = "pairs"
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
                rows = lay_out(row_B, key_B)
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
