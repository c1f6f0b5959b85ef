"""Attention whose backward pass saves one number per pair of positions.

B batch   L length of queries   M length of keys   H heads   G key heads   K head width
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from models.layers import ops
from models.layers.dropout import KeyedDropout
from models.layers.masks import Mask, PairBias, make_dense_bias
from pretrain.kernels.attention.plain.attention_products import (
    compute_scores,
    compute_weigh_values_gradients,
    weigh_values,
)
from pretrain.kernels.matmul import sum_rows_by_product
from pretrain.kernels.rematerialization import prevent_cse


@jax.custom_vjp
def average_values(
    scores_BHLM: jax.Array, v_BMHK: jax.Array, drop: KeyedDropout | None
) -> jax.Array:
    """Return softmax(scores) v, shape [B, L, H, K], as `models.layers.ops.average_values`.

    The backward pass saves only the softmax, in the dtype of v, and applies dropout to it again.
    JAX would also save the arrays before and after it.
    """
    return _average_values_fwd(scores_BHLM, v_BMHK, drop)[0]


def _drop_weights(weights_BHLM: jax.Array, drop: KeyedDropout | None) -> jax.Array:
    return weights_BHLM if drop is None else drop(weights_BHLM)


def _average_values_fwd(
    scores_BHLM: jax.Array, v_BMHK: jax.Array, drop: KeyedDropout | None
) -> tuple[jax.Array, tuple[Any, ...]]:
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype)
    return weigh_values(_drop_weights(weights_BHLM, drop), v_BMHK), (weights_BHLM, v_BMHK, drop)


def _average_values_bwd(
    residuals: tuple[Any, ...], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    weights_BHLM, v_BMHK, drop = residuals
    weights_BHLM, drop, gradient = prevent_cse((weights_BHLM, drop, gradient))
    dropped_BHLM = _drop_weights(weights_BHLM, drop)
    d_dropped_BHLM, dv_BMHK = compute_weigh_values_gradients(dropped_BHLM, v_BMHK, gradient)
    weights_BHLM, d_weights_BHLM = (
        weights_BHLM.astype(jnp.float32),
        _drop_weights(d_dropped_BHLM, drop).astype(jnp.float32),
    )
    d_scores_BHLM = weights_BHLM * (
        d_weights_BHLM - (weights_BHLM * d_weights_BHLM).sum(-1, keepdims=True)
    )
    return d_scores_BHLM, dv_BMHK, None


average_values.defvjp(_average_values_fwd, _average_values_bwd)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def repeat_bias(bias_1HLM: jax.Array, num_rows: int) -> jax.Array:
    """Return a bias that all rows share once for each row, [B, H, L, M].

    On a CPU its gradient is summed over the rows by a product; see `sum_rows_by_product`.
    """
    return jnp.broadcast_to(bias_1HLM, (num_rows, *bias_1HLM.shape[1:]))


def _repeat_bias_bwd(num_rows: int, _: None, gradient_BHLM: jax.Array) -> tuple[jax.Array]:
    def on_cpu(gradient_BHLM: jax.Array) -> jax.Array:
        sums = sum_rows_by_product(gradient_BHLM.reshape(num_rows, -1))
        return sums.astype(gradient_BHLM.dtype).reshape(1, *gradient_BHLM.shape[1:])

    return (
        jax.lax.platform_dependent(
            gradient_BHLM,
            cpu=on_cpu,
            default=lambda gradient_BHLM: gradient_BHLM.sum(0, keepdims=True),
        ),
    )


repeat_bias.defvjp(
    lambda bias_1HLM, num_rows: (repeat_bias(bias_1HLM, num_rows), None), _repeat_bias_bwd
)


def attend(
    q_BLHK: jax.Array,
    k_BMGK: jax.Array,
    v_BMGK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | PairBias | None = None,
    scale: float | None = None,
    drop: KeyedDropout | None = None,
) -> jax.Array:
    """Compute `models.layers.ops.attend`, and save less for the backward pass."""
    v_BMGK, drop = move_shared_dropout(q_BLHK, v_BMGK, mask, bias, drop)
    bias = make_dense_bias(bias)
    if bias is not None and bias.ndim == 4 and bias.shape[0] == 1:
        bias = repeat_bias(bias, q_BLHK.shape[0])
    return ops.attend(
        q_BLHK,
        k_BMGK,
        v_BMGK,
        mask=mask,
        bias=bias,
        scale=scale,
        drop=drop,
        score=compute_scores,
        average=average_values,
    )


def move_shared_dropout(
    q_BLHK: jax.Array,
    v_BMGK: jax.Array,
    mask: Mask | jax.Array | None,
    bias: jax.Array | PairBias | None,
    drop: KeyedDropout | None,
) -> tuple[jax.Array, KeyedDropout | None]:
    """Return the values and the dropout of the weights that is left to apply.

    Where all queries of a head share a draw, as in T5, a key without a weight is a value of zeros,
    and a factor of the weights is one of the values. A kernel that has no dropout can then be used,
    and nothing of [B, H, L, M] is dropped. A key has the draw that its weights would have.
    """
    if drop is None or drop.broadcast_dims not in ((-2,), (2,)):
        return v_BMGK, drop
    (B, L, H, _), M = q_BLHK.shape, v_BMGK.shape[1]
    rules = mask if isinstance(mask, Mask) and bias is None else Mask()
    if rules.chunks is not None or rules.find_block_pattern(L, M):
        return v_BMGK, drop  # there, the queries of a block share a draw
    factor_BH1M = drop(jnp.ones((B, H, 1, M), v_BMGK.dtype))
    return ops.repeat_heads(v_BMGK, H) * factor_BH1M[:, :, 0].swapaxes(1, 2)[..., None], None
