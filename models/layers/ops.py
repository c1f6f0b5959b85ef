"""The operations that layers are made of, as their equations.

A trainer may replace each by one that its devices compute faster, of the same signature and, up to rounding, the same values.

B batch   L length   M length of what is read   H heads   K head width   I, O the dimensions that a kernel sums over and makes
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.layers.masks import Mask


def apply_linear(x, kernel, contract=1, result=None):
    """Return x [..., I] @ kernel [I, O], shape [..., O].

    contract: the number of dimensions I. result: the type of the product; that of x by default.
    """
    last, first = tuple(range(x.ndim - contract, x.ndim)), tuple(range(contract))
    return jax.lax.dot_general(x, kernel, ((last, first), ((), ())), preferred_element_type=result)


def apply_activation_linear(act, read, drop, kernel, contract=1, result=None):
    """Return drop(act(*read)) @ kernel.

    read: a tuple of arrays [..., I]. drop: a `models.layers.dropout.Drop`, or None. The rest is as in `apply_linear`.
    """
    x = act(*read)
    return apply_linear(x if drop is None else drop(x), kernel, contract, result)


def add_bias(x, bias):
    """Return x [..., O] + bias [O]."""
    return x + bias


def leave_unchanged(x):
    """Return x."""
    return x


def drop_values(x, key, rate, shape):
    """Return x / (1 - rate), in which each value is 0 with probability `rate` (Srivastava et al. 2014, section 4).

    key: the two words of a key, uint32. shape: that of x, with 1 for an axis whose values share their fate.
    """
    is_kept = jax.random.bernoulli(jax.random.wrap_key_data(key), 1 - rate, shape)
    return jnp.where(is_kept, x / jnp.asarray(1 - rate, x.dtype), jnp.zeros((), x.dtype))


def average_values(scores_BHLM, v_BMHK, drop):
    """Return softmax(scores) v, shape [B, L, H, K], in the type of v. drop: applied to the weights, or None."""
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype)
    if drop is not None:
        weights_BHLM = drop(weights_BHLM)
    return jnp.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def mask_scores(scores_BHLM, mask, bias):
    """Return scores + bias where `mask` is True and the least float elsewhere, float32. mask, bias: as in `attend`, or None."""
    if bias is not None:
        scores_BHLM += bias.astype(jnp.float32)
    if isinstance(mask, Mask):
        mask = mask.dense(*scores_BHLM.shape[-2:])
    if mask is not None:
        scores_BHLM = jnp.where(mask, scores_BHLM, jnp.finfo(jnp.float32).min)
    return scores_BHLM


def attend(
    q_BLHK, k_BMHK, v_BMHK, *, mask=None, bias=None, scale=None, drop=None, average=average_values
):
    """Return softmax(scale * q k^T + bias) v, shape [B, L, H, K], in the type of v (Vaswani et al. 2017, section 3.2.1).

    Args:
      mask: a `Mask`, or bool broadcastable to [B, H, L, M]; True where a position may read another.
      bias: float broadcastable to [B, H, L, M], added to the scores.
      scale: factor of the scores; K ** -0.5 by default.
      drop: a `models.layers.dropout.Drop` for the weights, or None.
      average: a function with the signature of `average_values`.

    Scores and softmax are float32. A position that may read nothing gets the mean of all v, which is finite; its loss has the weight 0.
    """
    scale = q_BLHK.shape[-1] ** -0.5 if scale is None else scale
    scores_BHLM = jnp.einsum("blhk,bmhk->bhlm", q_BLHK, k_BMHK, preferred_element_type=jnp.float32)
    return average(mask_scores(scores_BHLM * scale, mask, bias), v_BMHK, drop)


class Ops(NamedTuple):
    """What a trainer may replace in every layer of a model. Each field has the signature of its default.

    activation_linear: a linear map of an activation that is dropped: the backward pass may compute the activation again.
    recompute: takes a function of arrays and returns one of the same values: the backward pass may compute it again.
    constrain: applied to the activations [B, L, D] at the top of each layer, to say how they lie on devices.
    """

    linear: Callable = apply_linear
    activation_linear: Callable = apply_activation_linear
    add_bias: Callable = add_bias
    recompute: Callable = leave_unchanged
    drop: Callable = drop_values
    attend: Callable = attend
    constrain: Callable = leave_unchanged


PLAIN = Ops()
