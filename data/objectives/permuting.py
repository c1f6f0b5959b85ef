"""Choice of the predicted tokens of a row and of its factorization order (Yang et al. 2019).

B rows   L row length   P predicted positions of a row   M predicted tokens of the batch
S spans of a row   N lengths of a span   E = L + 1 edges
"""

import numpy as np

from data.objectives.masking import fill_slots
from data.rows import hashing
from data.rows.tables import Batch
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
