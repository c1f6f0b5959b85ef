"""The keys and values of every attention that decoding keeps, so that each word is read once.

They are two collections of Linen variables, which `models.generation.cached_attention` writes and reads. `cache` has a decoder's own
keys and values, one slot a position: a prompt leaves its own there; then a `Step` at a time is written behind them. `memory` has those
of what a decoder reads beside its own words, which a prompt leaves there for good. Neither is there in training.

B batch   N slots   L length   D width   H heads   K head width   P rows of a table
"""

import flax.struct
import jax
import jax.numpy as jnp

CACHE, MEMORY = "cache", "memory"  # [..., B, H, N, K]; the dots are a scanned stack's layers


class Step(flax.struct.PyTreeNode):
    """Where one word of each row stands: position_B, int32, which is also its slot among the `slots` of the cache."""

    position_B: jax.Array
    slots: int = flax.struct.field(pytree_node=False)


def at(table_PD, L, step=None):
    """The rows of a table of positions for L words from the first on [L, D], or for a step's one word a row [B, 1, D].

    Raises ValueError where the cache has more slots than the table has rows.
    """
    if step is None:
        return table_PD[:L]
    if step.slots > len(table_PD):
        raise ValueError(
            f"a prompt and what is to be written behind it take {step.slots} positions; the model has {len(table_PD)} (model.length)"
        )
    return table_PD[step.position_B][:, None]


def widen(cache, slots):
    """Room for `slots` positions in all, of which a prompt has filled the first."""
    return jax.tree.map(
        lambda x: jnp.pad(
            x, [(0, slots - n if axis == x.ndim - 2 else 0) for axis, n in enumerate(x.shape)]
        ),
        cache,
    )


def gather(cache, row_B):
    """The rows of that number, of which one may be taken several times."""
    return jax.tree.map(lambda x: jnp.take(x, row_B, axis=x.ndim - 4), cache)
