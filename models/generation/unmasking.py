"""Filling the masks of a row in several steps, the most certain first.

Chang et al. (2022, MaskGIT), section 3.2; Nie et al. (2025, LLaDA), section 2.4. Each step reads
the whole row, chooses a token for each mask, and keeps the tokens that are most probable. Of a row
that is cut into blocks, a block is filled before the next one begins.

B batch   L row length   P masks of a row   S steps   V vocabulary
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.generation.sampling import Greedy, Sample


class Filled(NamedTuple):
    """What has been filled in.

    ids_BP: the token of each mask.
    probability_BP: its probability when it was chosen.
    step_BP: the step that filled it, from 1; 0 where there was no mask.
    """

    ids_BP: jax.Array
    probability_BP: jax.Array
    step_BP: jax.Array


def plan_steps(number: int, steps: int | None = None, block: int | None = None) -> list[list[int]]:
    """Return [[masks that are open, masks to fill], ...], one entry a step.

    Args:
      number: masks of the row.
      steps: steps for the whole row; None: one for each mask. A block takes one step at least, and
        one for each of its masks at most.
      block: masks of a block; None: the row is one block.
    """
    plan: list[list[int]] = []
    block = min(block or number, number)
    num_blocks = -(-number // block)
    for first in range(0, number, block):
        size = min(block, number - first)
        own = size if steps is None else min(max(steps // num_blocks, 1), size)
        plan += [[first + size, size // own + (s < size % own)] for s in range(own)]
    return plan


def fill_masks(
    compute_logits: Callable[[jax.Array], jax.Array],
    tokens_BL: jax.Array,
    positions_BP: jax.Array,
    open_SB: jax.Array,
    count_SB: jax.Array,
    key_B: jax.Array,
    allowed_V: jax.Array,
    strategy: Greedy = Greedy(),
) -> Filled:
    """Return what fills the masks of rows; all other tokens stay.

    Args:
      compute_logits: tokens_BL -> logits [B, P, V] of the positions.
      tokens_BL: rows with their masks.
      positions_BP: int32, the masks of each row in order, then any numbers.
      open_SB, count_SB: int32, `plan_steps` of each row, then zeros.
      key_B: the random key of each row.
      allowed_V: bool, the ids that can be filled in.
      strategy: how the token of a mask is chosen. Sampled tokens are kept by their probability too.
    """
    (B, P), L = positions_BP.shape, tokens_BL.shape[1]
    row_B1, slot_P = jnp.arange(B)[:, None], jnp.arange(P)
    if isinstance(strategy, Sample):
        strategy = dataclasses.replace(strategy, noise="high")

    def choose_tokens(logits_BPV: jax.Array, s: jax.Array) -> jax.Array:
        """Return a token for each mask, by keys that do not depend on the other rows."""
        step_key_B = jax.vmap(jax.random.fold_in, (0, None))(key_B, s)
        key_BP = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(step_key_B, slot_P)
        flat = logits_BPV.reshape(B * P, -1)
        return strategy.select_tokens(flat, key_BP.reshape(B * P)).reshape(B, P)

    def take_step(s: jax.Array, state: tuple[jax.Array, Filled]) -> tuple[jax.Array, Filled]:
        tokens_BL, filled = state
        logits_BPV = compute_logits(tokens_BL).astype(jnp.float32)
        logits_BPV = jnp.where(allowed_V, logits_BPV, -jnp.inf)
        ids_BP = choose_tokens(logits_BPV, s).astype(jnp.int32)
        probability_BPV = jax.nn.softmax(logits_BPV, axis=-1)
        probability_BP = jnp.take_along_axis(probability_BPV, ids_BP[..., None], -1)[..., 0]
        is_open_BP = (filled.step_BP == 0) & (slot_P < open_SB[s][:, None])
        certainty_BP = jnp.where(is_open_BP, probability_BP, -1.0)
        rank_BP = jnp.argsort(jnp.argsort(-certainty_BP, axis=-1), axis=-1)
        now_BP = is_open_BP & (rank_BP < count_SB[s][:, None])
        place_BP = jnp.where(now_BP, positions_BP, L)  # L is no position, and is dropped
        return tokens_BL.at[row_B1, place_BP].set(ids_BP, mode="drop"), Filled(
            jnp.where(now_BP, ids_BP, filled.ids_BP),
            jnp.where(now_BP, probability_BP, filled.probability_BP),
            jnp.where(now_BP, s + 1, filled.step_BP),
        )

    zeros = jnp.zeros((B, P), jnp.int32)
    nothing = Filled(zeros, jnp.zeros((B, P), jnp.float32), zeros)
    num_steps = (count_SB > 0).any(axis=1).sum()
    return jax.lax.fori_loop(0, num_steps, take_step, (tokens_BL, nothing))[1]
