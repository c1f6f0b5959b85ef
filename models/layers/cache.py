"""What decoding keeps of the words that were read, so that each is read once: the keys and values of every attention.

They are two collections of Linen variables. `cache` has a decoder's own keys and values, one slot a position: read while it is
mutable, a prompt leaves its own there; then a `Step` at a time is written behind them. `memory` has those of what a decoder reads
beside its own words, which a prompt leaves there for good. Neither is there in training.

B batch   N slots   L length   M prompt length   D width   H heads   K head width   P rows of a table
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


def recall(module, name, step, keys_and_values):
    """What an attention has kept, its keys and values [B, H, N, K], or None.

    name: `MEMORY`, or `CACHE`, to which the keys and values [B, 1, H, K] of a `step` are added first.
    """
    if name == MEMORY:
        return (
            (module.get_variable(name, "key"), module.get_variable(name, "value"))
            if module.has_variable(name, "key")
            else None
        )
    if step is None:
        return None
    if not module.has_variable(name, "key"):
        raise ValueError(
            f"a step of decoding reads what a prompt has left in the collection {name!r}, and there is nothing"
        )
    # XLA's CPU compiler takes a single update for one of a slice, fuses that with each of its readers, and copies the cache for every
    # one of them (measured: 5 times the time at 576 slots). The same update twice stays one, in place.
    row = jnp.arange(len(step.position_B)) if len(step.position_B) > 1 else jnp.zeros(2, jnp.int32)
    slots = module.get_variable(name, "key"), module.get_variable(name, "value")
    slots = tuple(
        all_BHNK.at[row, :, step.position_B[row]].set(own_B1HK[row, 0])
        for all_BHNK, own_B1HK in zip(slots, keys_and_values())
    )
    module.put_variable(name, "key", slots[0])
    module.put_variable(name, "value", slots[1])
    return slots


def keep(module, name, key_BMHK, value_BMHK):
    """Leave them for later words, where somebody asks for it. Heads first: a head is read from end to end, and no other way is as fast."""
    if module.is_mutable_collection(name) and not module.is_initializing():
        module.put_variable(name, "key", key_BMHK.swapaxes(1, 2))
        module.put_variable(name, "value", value_BMHK.swapaxes(1, 2))


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
