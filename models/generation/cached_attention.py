"""Attention with the key-value cache of `models.layers.cache`, around the attention of any model.

No model file contains code for this. The call is intercepted, and `attend` is replaced by one that
writes keys and values to the cache and attends to those in it.

B batch   L query length   M key length   N slots   H heads   G key heads   K head width
X = B G   S = L H / G
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.attention import Attention
from models.layers.cache import CACHE, MEMORY, DecodingStep
from models.layers.masks import Mask
from models.layers.ops import cap_values, mask_scores
from models.layers.relative.distance_bias import DistanceBias


def apply_cached(model: Any, variables: Any, *arguments: Any, **settings: Any) -> Any:
    """Return `model.apply(variables, *arguments, **settings)`, whose attentions use the cache.

    Keys and values are in the collections `CACHE` and `MEMORY`, and are written if these are
    mutable. Rows with the same memory, such as the hypotheses of a beam search, are adjacent.

    Raises:
      ValueError: a decoding step without the cache of a prompt.
    """
    active_attentions = []

    def track_attention(
        call: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module = context.module
        if not isinstance(module, Attention) or context.method_name != "__call__":
            return call(*args, **kwargs)
        memory_BMD = args[1] if len(args) > 1 else kwargs.get("memory_BMD")
        active_attentions.append((module, CACHE if memory_BMD is None else MEMORY))
        output = call(*args, **kwargs)
        active_attentions.pop()
        return output

    def attend_cached(
        q_BLHK: jax.Array,
        k_BMGK: jax.Array,
        v_BMGK: jax.Array,
        *,
        mask: Mask | jax.Array | None = None,
        **settings: Any,
    ) -> jax.Array:
        module, collection = active_attentions[-1]
        step = mask.step if isinstance(mask, Mask) else None
        cached = update_cache(module, collection, step, k_BMGK, v_BMGK)
        if cached is None:
            write_cache(module, collection, k_BMGK, v_BMGK)
            return model.ops.attend(q_BLHK, k_BMGK, v_BMGK, mask=mask, **settings)
        # Rows that share a memory become further queries of one row.
        rows_BLHK = q_BLHK.reshape(len(cached[0]), -1, *q_BLHK.shape[2:])
        return attend_to_cache(rows_BLHK, *cached, mask=mask, **settings).reshape(q_BLHK.shape)

    with nn.intercept_methods(track_attention):
        cached_model = model.clone(ops=model.ops._replace(attend=attend_cached))
        return cached_model.apply(variables, *arguments, **settings)


def update_cache(
    module: Attention,
    collection: str,
    step: DecodingStep | None,
    k_BMGK: jax.Array,
    v_BMGK: jax.Array,
) -> tuple[jax.Array, jax.Array] | None:
    """Return the cached keys and values [B, G, N, K] of an attention, or None without any.

    Args:
      module: the attention.
      collection: `MEMORY`; or `CACHE`, to which the step's keys and values are added.
      step: a decoding step; None for a prompt.
      k_BMGK: the step's keys, [B, 1, G, K].
      v_BMGK: the step's values, [B, 1, G, K].

    Raises:
      ValueError: a decoding step without the cache of a prompt.
    """
    if collection == MEMORY:
        if not module.has_variable(collection, "key"):
            return None
        return module.get_variable(collection, "key"), module.get_variable(collection, "value")
    if step is None:
        return None
    if not module.has_variable(collection, "key"):
        raise ValueError(
            f"a decoding step needs the keys and values of a prompt in the collection "
            f"{collection!r}, which is empty"
        )
    # A single update would be lowered to a slice update, which is fused with each of its readers
    # and copies the cache for every one of them (measured: 5 times the time at 576 slots). The same
    # update twice stays one scatter in place.
    row = jnp.arange(len(step.position_B)) if len(step.position_B) > 1 else jnp.zeros(2, jnp.int32)
    cached_k_BGNK, cached_v_BGNK = (
        module.get_variable(collection, variable)
        .at[row, :, step.position_B[row]]
        .set(new_B1GK[row, 0])
        for variable, new_B1GK in (("key", k_BMGK), ("value", v_BMGK))
    )
    module.put_variable(collection, "key", cached_k_BGNK)
    module.put_variable(collection, "value", cached_v_BGNK)
    return cached_k_BGNK, cached_v_BGNK


def write_cache(module: Attention, collection: str, k_BMGK: jax.Array, v_BMGK: jax.Array) -> None:
    """Write keys and values to `collection`, where it is mutable.

    The axis of heads comes first, because the positions of one head are read together.
    """
    if module.is_mutable_collection(collection):
        module.put_variable(collection, "key", k_BMGK.swapaxes(1, 2))
        module.put_variable(collection, "value", v_BMGK.swapaxes(1, 2))


def attend_to_cache(
    q_BLHK: jax.Array,
    k_BGMK: jax.Array,
    v_BGMK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | DistanceBias | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    drop: Callable[[jax.Array], jax.Array] | None = None,
) -> jax.Array:
    """Return `models.layers.ops.attend` of keys and values in the layout of the cache."""
    B, L, H, K = q_BLHK.shape
    factor: float = K**-0.5 if scale is None else scale
    # Each head as a row of its own: with more dimensions the cache would be transposed. The query
    # heads that share keys become further queries of it.
    G = k_BGMK.shape[1]
    q_XSK = q_BLHK.swapaxes(1, 2).reshape(B * G, -1, K)
    k_XMK, v_XMK = (x.reshape(-1, *x.shape[2:]) for x in (k_BGMK, v_BGMK))
    scores_XSM = jnp.einsum("xsk,xmk->xsm", q_XSK, k_XMK, preferred_element_type=jnp.float32)
    scores_BHLM = cap_values(scores_XSM.reshape(B, H, L, -1) * factor, soft_cap)
    scores_BHLM = mask_scores(scores_BHLM, mask, bias)
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BGMK.dtype)
    if drop is not None:
        weights_BHLM = drop(weights_BHLM)
    weights_XSM = weights_BHLM.reshape(*scores_XSM.shape)
    out_XSK = jnp.einsum("xsm,xmk->xsk", weights_XSM, v_XMK)
    return out_XSK.reshape(B, H, L, K).swapaxes(1, 2)
