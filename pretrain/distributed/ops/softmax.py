"""Attention whose backward pass saves one number per pair of positions.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from models.layers import ops
from models.layers.dropout import Drop
from pretrain.distributed.ops.recompute import separate


@jax.custom_vjp
def average_values(scores_BHLM: jax.Array, v_BMHK: jax.Array, drop: Drop | None) -> jax.Array:
    """Return softmax(scores) v, shape [B, L, H, K], as `models.layers.ops.average_values`.

    The backward pass saves only the softmax, in the dtype of v, and applies dropout to it again.
    JAX would also save the arrays before and after it.
    """
    return _forwards(scores_BHLM, v_BMHK, drop)[0]


def _average(weights_BHLM: jax.Array, v_BMHK: jax.Array) -> jax.Array:
    return jnp.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def _drop(weights_BHLM: jax.Array, drop: Drop | None) -> jax.Array:
    return weights_BHLM if drop is None else drop(weights_BHLM)


def _forwards(
    scores_BHLM: jax.Array, v_BMHK: jax.Array, drop: Drop | None
) -> tuple[jax.Array, tuple[Any, ...]]:
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype)
    return _average(_drop(weights_BHLM, drop), v_BMHK), (weights_BHLM, v_BMHK, drop)


def _backwards(
    residuals: tuple[Any, ...], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    weights_BHLM, v_BMHK, drop = residuals
    weights_BHLM, drop, gradient = separate((weights_BHLM, drop, gradient))
    dropped_BHLM = _drop(weights_BHLM, drop)
    (d_dropped_BHLM,) = jax.linear_transpose(
        lambda dropped: _average(dropped, v_BMHK), dropped_BHLM
    )(gradient)
    (dv_BMHK,) = jax.linear_transpose(lambda v: _average(dropped_BHLM, v), v_BMHK)(gradient)
    weights_BHLM, d_weights_BHLM = (
        weights_BHLM.astype(jnp.float32),
        _drop(d_dropped_BHLM, drop).astype(jnp.float32),
    )
    d_scores_BHLM = weights_BHLM * (
        d_weights_BHLM - (weights_BHLM * d_weights_BHLM).sum(-1, keepdims=True)
    )
    return d_scores_BHLM, dv_BMHK, None


average_values.defvjp(_forwards, _backwards)

attend = partial(ops.attend, average=average_values)
