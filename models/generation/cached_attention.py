"""Attention that reads each word once: around the attention of any model, the cache of `models.layers.cache`.

The model knows nothing of it. A call is watched from outside, and `attend` is replaced by one that keeps keys and values and reads them again.

B batch   L length   M length of what is read   N slots   H heads   K head width   X = B H
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.cache import CACHE, MEMORY
from models.layers.ops import mask_scores


def apply_cached(model, variables, *arguments, **settings):
    """Return `model.apply(variables, *arguments, **settings)`, of which each attention keeps its keys and values and reads those kept.

    They are kept in the collections `CACHE` and `MEMORY` where these are mutable. Rows that read the same memory, as those of a beam do,
    stand one behind the other. Raises ValueError for a step of decoding without the cache of a prompt.
    """
    reading = []

    def watch(call, args, kwargs, context):
        module = context.module
        if not isinstance(module, Attention) or context.method_name != "__call__":
            return call(*args, **kwargs)
        memory_BMD = args[1] if len(args) > 1 else kwargs.get("memory_BMD")
        reading.append((module, CACHE if memory_BMD is None else MEMORY))
        output = call(*args, **kwargs)
        reading.pop()
        return output

    def attend(q_BLHK, k_BMHK, v_BMHK, *, mask=None, **settings):
        module, name = reading[-1]
        kept = recall(module, name, getattr(mask, "step", None), k_BMHK, v_BMHK)
        if kept is None:
            keep(module, name, k_BMHK, v_BMHK)
            return model.ops.attend(q_BLHK, k_BMHK, v_BMHK, mask=mask, **settings)
        rows_BLHK = q_BLHK.reshape(len(kept[0]), -1, *q_BLHK.shape[2:])
        return attend_kept(rows_BLHK, *kept, mask=mask, **settings).reshape(q_BLHK.shape)

    with nn.intercept_methods(watch):
        cached = model.clone(ops=model.ops._replace(attend=attend))
        return cached.apply(variables, *arguments, **settings)


def recall(module, name, step, k_BMHK, v_BMHK):
    """Return the keys and values [B, H, N, K] that an attention has kept, or None.

    name: `MEMORY`, or `CACHE`, to which the keys and values [B, 1, H, K] of a `step` are added first.
    """
    if name == MEMORY:
        if not module.has_variable(name, "key"):
            return None
        return module.get_variable(name, "key"), module.get_variable(name, "value")
    if step is None:
        return None
    if not module.has_variable(name, "key"):
        raise ValueError(
            f"a step of decoding reads what a prompt has left in the collection {name!r}, and there is nothing"
        )
    # A single update would be taken for one of a slice, fused with each of its readers, and the cache copied for every one of them
    # (measured: 5 times the time at 576 slots). The same update twice stays one, in place.
    row = jnp.arange(len(step.position_B)) if len(step.position_B) > 1 else jnp.zeros(2, jnp.int32)
    slots = module.get_variable(name, "key"), module.get_variable(name, "value")
    slots = tuple(
        all_BHNK.at[row, :, step.position_B[row]].set(own_B1HK[row, 0])
        for all_BHNK, own_B1HK in zip(slots, (k_BMHK, v_BMHK))
    )
    module.put_variable(name, "key", slots[0])
    module.put_variable(name, "value", slots[1])
    return slots


def keep(module, name, k_BMHK, v_BMHK):
    """Leave keys and values for later words, where the collection is mutable. Heads come first: a head is read from end to end."""
    if module.is_mutable_collection(name):
        module.put_variable(name, "key", k_BMHK.swapaxes(1, 2))
        module.put_variable(name, "value", v_BMHK.swapaxes(1, 2))


def attend_kept(q_BLHK, k_BHMK, v_BHMK, *, mask=None, bias=None, scale=None, drop=None):
    """Return what `models.layers.ops.attend` returns, of keys and values that lie as the cache has them."""
    B, L, H, K = q_BLHK.shape
    scale = K**-0.5 if scale is None else scale
    # Every head as a row of its own: with more dimensions the cache would be transposed.
    q_XLK = q_BLHK.swapaxes(1, 2).reshape(-1, L, K)
    k_XMK, v_XMK = (x.reshape(-1, *x.shape[2:]) for x in (k_BHMK, v_BHMK))
    scores_XLM = jnp.einsum("xlk,xmk->xlm", q_XLK, k_XMK, preferred_element_type=jnp.float32)
    scores_BHLM = mask_scores(scores_XLM.reshape(B, H, L, -1) * scale, mask, bias)
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BHMK.dtype)
    if drop is not None:
        weights_BHLM = drop(weights_BHLM)
    o_XLK = jnp.einsum("xlm,xmk->xlk", weights_BHLM.reshape(B * H, L, -1), v_XMK)
    return o_XLK.reshape(B, H, L, K).swapaxes(1, 2)
