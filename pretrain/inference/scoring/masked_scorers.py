"""Scorers of tokens that a model sees masked: encoders, and hybrids that predict the next token.

A token is scored in a copy of its text in which it is masked (Salazar et al. 2020).

B rows   L row length   T scored tokens
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pretrain.inference import batching
from pretrain.inference.in_context_scorers import ScoredRow, Scorer, pad_targets


class MaskedScorer(Scorer):
    """Scores with an encoder, at the positions of the masked tokens."""

    @staticmethod
    def compute_states(
        apply: Callable[..., Any],
        tokens_BL: jax.Array,
        valid_BL: jax.Array,
        positions_BT: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states at the masked positions, [B, T, D]."""
        states = apply(tokens_BL, valid_BL, masked_positions=positions_BT, method="compute_states")
        return states[0]

    def get_shape(self, row: ScoredRow) -> tuple[int, int]:
        """Return the padded lengths (L, T) of a row."""
        L = batching.pad_length(len(row[0]))
        return min(L, self.longest or L), batching.round_up_to_power(len(row[-1]))

    def make_arrays(self, rows: Sequence[ScoredRow], L: int, T: int) -> tuple[np.ndarray, ...]:
        """Return ids [B, L], their mask [B, L], positions [B, T] and targets [B, T]."""
        B = batching.round_up_to_power(len(rows))
        tokens_BL = np.full((B, L), self.vocabulary.pad or 0, np.int32)
        valid_BL = np.zeros((B, L), bool)
        for b, (read, _, _) in enumerate(rows):
            tokens_BL[b, : len(read)] = read
            valid_BL[b, : len(read)] = True
        valid_BL[len(rows) :, 0] = True
        positions_BT, targets_BT = (
            pad_targets([row[part] for row in rows], B, T) for part in (1, 2)
        )
        return tokens_BL, valid_BL, positions_BT, targets_BT


class MaskedNextScorer(MaskedScorer):
    """Scores with a hybrid, one position before each masked token.

    Its attention is bidirectional and knows no padding, so rows of a batch have one length.
    """

    @staticmethod
    def compute_states(
        apply: Callable[..., Any],
        tokens_BL: jax.Array,
        valid_BL: jax.Array,
        positions_BT: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states before the masked positions, [B, T, D]."""
        return apply(tokens_BL, masked_positions=positions_BT - 1, method="compute_states")

    def get_shape(self, row: ScoredRow) -> tuple[int, int]:
        """Return the lengths (L, T) of a row, of which T is padded."""
        return len(row[0]), batching.round_up_to_power(len(row[-1]))

    def make_arrays(self, rows: Sequence[ScoredRow], L: int, T: int) -> tuple[np.ndarray, ...]:
        """Return ids [B, L], their mask [B, L], positions [B, T] from 1, and targets [B, T]."""
        tokens_BL, valid_BL, positions_BT, targets_BT = super().make_arrays(rows, L, T)
        return tokens_BL, valid_BL, np.maximum(positions_BT, 1), targets_BT
