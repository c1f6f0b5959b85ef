"""Attention whose backward pass keeps one number of each pair of positions.

B batch   L length   M length of what is read   H heads   K head width
"""

from functools import partial

import jax
import jax.numpy as jnp

from models.layers import ops
from pretrain.distributed.ops.recompute import separate


@jax.custom_vjp
def average_values(scores_BHLM, v_BMHK, drop):
    """Return softmax(scores) v, shape [B, L, H, K], as `models.layers.ops.average_values`.

    Of each pair the backward pass keeps the softmax's weight alone, in the type of v, and drops it again. JAX keeps what comes before and
    after it, too.
    """
    return _forwards(scores_BHLM, v_BMHK, drop)[0]


def _average(weights_BHLM, v_BMHK):
    return jnp.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def _drop(weights_BHLM, drop):
    return weights_BHLM if drop is None else drop(weights_BHLM)


def _forwards(scores_BHLM, v_BMHK, drop):
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype)
    return _average(_drop(weights_BHLM, drop), v_BMHK), (weights_BHLM, v_BMHK, drop)


def _backwards(kept, gradient):
    weights_BHLM, v_BMHK, drop = kept
    weights_BHLM, drop, gradient = separate((weights_BHLM, drop, gradient))
    dropped_BHLM = _drop(weights_BHLM, drop)
    (of_dropped_BHLM,) = jax.linear_transpose(
        lambda dropped: _average(dropped, v_BMHK), dropped_BHLM
    )(gradient)
    (of_v_BMHK,) = jax.linear_transpose(lambda v: _average(dropped_BHLM, v), v_BMHK)(gradient)
    weights_BHLM, of_weights_BHLM = (
        weights_BHLM.astype(jnp.float32),
        _drop(of_dropped_BHLM, drop).astype(jnp.float32),
    )
    of_scores_BHLM = weights_BHLM * (
        of_weights_BHLM - (weights_BHLM * of_weights_BHLM).sum(-1, keepdims=True)
    )
    return of_scores_BHLM, of_v_BMHK, None


average_values.defvjp(_forwards, _backwards)

attend = partial(ops.attend, average=average_values)
