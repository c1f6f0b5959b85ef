"""What decoding keeps of the words that were read, so that each is read once: the keys and values of every attention.

They are two collections of Linen variables. `cache` has a decoder's own keys and values, one slot a position: read while it is
mutable, a prompt leaves its own there; then a `Step` at a time is written behind them. `memory` has those of what a decoder reads
beside its own words, which a prompt leaves there for good. Neither is there in training.

B batch   N slots   L length   D width   P rows of a table
"""

import flax
import jax
import jax.numpy as jnp

CACHE, MEMORY = "cache", "memory"  # [..., B, N, H, K]; the dots are a scanned stack's layers


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
        raise ValueError(f"a prompt and what is to be written behind it take {step.slots} positions; the model has {len(table_PD)} (model.length)")
    return table_PD[step.position_B][:, None]


def remember(module, kept, keys_and_values, step):
    """What an attention reads, (k_BMHK, v_BMHK): those of `keys_and_values()`, and while decoding those that are kept as well.

    kept: `MEMORY`, which is computed once, or `CACHE`, in which a `step` writes its own in front of reading all.
    """
    if kept == MEMORY and module.has_variable(MEMORY, "key"):
        return module.get_variable(MEMORY, "key"), module.get_variable(MEMORY, "value")
    read = keys_and_values()
    if kept == CACHE and step is not None:
        if not module.has_variable(CACHE, "key"):
            raise ValueError(f"a step of decoding reads what a prompt has left in the collection {CACHE!r}, and there is nothing")
        row = jnp.arange(len(step.position_B))
        slots = module.get_variable(CACHE, "key"), module.get_variable(CACHE, "value")
        read = tuple(all_BNHK.at[row, step.position_B].set(own_B1HK[:, 0]) for all_BNHK, own_B1HK in zip(slots, read))
    if module.is_mutable_collection(kept) and not module.is_initializing():
        module.put_variable(kept, "key", read[0])
        module.put_variable(kept, "value", read[1])
    return read


def widen(cache, slots):
    """Room for `slots` positions in all, of which a prompt has filled the first."""
    return jax.tree.map(lambda x: jnp.pad(x, [(0, slots - n if axis == x.ndim - 3 else 0) for axis, n in enumerate(x.shape)]), cache)


def gather(cache, row_B):
    """The rows of that number, of which one may be taken several times."""
    return jax.tree.map(lambda x: jnp.take(x, row_B, axis=x.ndim - 4), cache)
