"""The cache of incremental decoding: each token passes through the model once.

It consists of three collections of Linen variables. Keys and values are in two of them, which
`models.generation.cached_attention` writes and reads. `CACHE` has the keys and values of a
decoder's self-attention, one slot a position: the prompt fills the first slots, and each decoding
step one more. `MEMORY` has the keys and values of its cross-attention, which the prompt fills once.
`CARRY` has the state that a recurrent decoder carries from a position to the next; a language model
carries it from a row to the next as well, in training too. `CACHE` and `MEMORY` do not exist in
training.

`SEGMENT_MEMORY` is no part of the cache of decoding. It has the activations of the previous segment
that a Transformer-XL reads again, in training too (`models.layers.relative.relative_attention`).

B batch   N slots   L length   D width   G key heads   K head width   P positions of a table
"""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

CACHE, MEMORY = "cache", "memory"  # leaves [..., B, G, N, K]; a scanned stack's layers come first
CARRY = "carry"  # leaves [B, ...]; a scanned stack's layers come second
SEGMENT_MEMORY = "segment_memory"  # leaves [B, ...]; a scanned stack's layers come second


class DecodingStep(flax.struct.PyTreeNode):
    """A decoding step, which reads one token of each row.

    position_B: int32, the position of that token, which is also its slot in the cache.
    num_slots: the number of slots in the cache.
    """

    position_B: jax.Array
    num_slots: int = flax.struct.field(pytree_node=False)


def look_up_positions(table_PD: jax.Array, L: int, step: DecodingStep | None = None) -> jax.Array:
    """Return the position embeddings of the first L positions, or of a step's tokens.

    Args:
      table_PD: an embedding of each position.
      L: the number of positions, counted from the first; not used with `step`.
      step: a decoding step.

    Returns:
      Embeddings [L, D], or [B, 1, D] with `step`.

    Raises:
      ValueError: the cache has more slots than the table has positions.
    """
    if step is None:
        return table_PD[:L]
    if step.num_slots > len(table_PD):
        raise ValueError(
            f"the prompt and the tokens to be generated take {step.num_slots} positions; "
            f"the model has {len(table_PD)} (model.length)"
        )
    return table_PD[step.position_B][:, None]


def pad_cache(cache: dict[str, Any], slots: int) -> dict[str, Any]:
    """Return {collection: variables}, with `slots` slots instead of N, padded with zeros."""
    padded = jax.tree.map(
        lambda x: jnp.pad(
            x, [(0, slots - n if axis == x.ndim - 2 else 0) for axis, n in enumerate(x.shape)]
        ),
        cache.get(CACHE, {}),
    )
    return cache | {CACHE: padded}


def gather_cache_rows(cache: dict[str, Any], row_B: jax.Array) -> dict[str, Any]:
    """Return {collection: variables} of the rows `row_B`; a row may be taken several times."""
    return {
        name: jax.tree.map(
            lambda x: jnp.take(x, row_B, axis=0 if name == CARRY else x.ndim - 4),  # noqa: B023
            variables,
        )
        for name, variables in cache.items()
    }
