"""Scorers of tokens that a model sees masked: encoders, and hybrids that predict the next token.

A token is scored in a copy of its text in which it is masked (Salazar et al. 2020). A model that
was trained on packed rows reads several short copies in one row, by their segments.

B rows   L row length   T scored tokens
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pretrain.inference import batching
from pretrain.inference.in_context_scorers import ScoredRow, Scorer, pad_targets

PACKED_LENGTH = 128  # [tokens] a packed row has at most; attention costs more in longer ones


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


class PackedMaskedScorer(MaskedScorer):
    """Scores with an encoder that reads packed rows: several copies share a row.

    Copies of a short text would leave most of a padded row empty. In a packed one each copy is a
    segment of its own, with its own positions, and attends to itself alone.
    """

    @staticmethod
    def compute_states(
        apply: Callable[..., Any],
        tokens_BL: jax.Array,
        valid_BL: jax.Array,
        segment_ids_BL: jax.Array,
        positions_BT: jax.Array,
        targets_BT: jax.Array,
    ) -> jax.Array:
        """Return the hidden states at the masked positions, [B, T, D]."""
        states = apply(
            tokens_BL,
            valid_BL,
            masked_positions=positions_BT,
            segment_ids=segment_ids_BL,
            method="compute_states",
        )
        return states[0]

    def score_tokens(
        self, rows: Sequence[ScoredRow], batch_size: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return `Scorer.score_tokens` of rows, which are packed first."""
        length = min(PACKED_LENGTH, self.longest or PACKED_LENGTH)
        packs = pack_rows([len(row[0]) for row in rows], length)
        packed = [_join_rows([rows[i] for i in pack]) for pack in packs]
        scores: list[Any] = [None] * len(rows)
        for pack, found in zip(packs, super().score_tokens(packed, batch_size), strict=True):
            ends = np.cumsum([len(rows[i][-1]) for i in pack])[:-1]
            for i, *parts in zip(pack, *(np.split(values, ends) for values in found), strict=True):
                scores[i] = tuple(parts)
        return scores

    def make_arrays(self, rows: Sequence[ScoredRow], L: int, T: int) -> tuple[np.ndarray, ...]:
        """Return ids, their mask, their segments [B, L] from 1; positions and targets [B, T]."""
        plain = [(read, positions, targets) for read, _, positions, targets in rows]
        tokens_BL, valid_BL, *scored = super().make_arrays(plain, L, T)
        segment_ids_BL = valid_BL.astype(np.int32)  # a row that only completes the batch has one
        for b, (read, segment_ids, _, _) in enumerate(rows):
            segment_ids_BL[b, : len(read)] = segment_ids
        return tokens_BL, valid_BL, segment_ids_BL, *scored


def pack_rows(lengths: Sequence[int], longest: int) -> list[list[int]]:
    """Return numbers of rows that share a row, at most `longest` tokens of them; longer ones alone.

    Rows of similar lengths go together, in the order of their lengths.
    """
    packs: list[list[int]] = []
    free = 0
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not packs or lengths[i] > free:
            packs.append([])
            free = longest
        packs[-1].append(i)
        free -= lengths[i]
    return packs


def _join_rows(rows: Sequence[ScoredRow]) -> ScoredRow:
    """Return one row (ids, segments from 1, positions, targets) of rows."""
    ids: list[int] = []
    segment_ids: list[int] = []
    positions: list[int] = []
    for number, (read, own, _) in enumerate(rows, 1):
        positions += [len(ids) + position for position in own]
        ids += read
        segment_ids += [number] * len(read)
    return ids, segment_ids, positions, [target for row in rows for target in row[-1]]


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
