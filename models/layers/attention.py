"""Multi-head attention (Vaswani et al. 2017, section 3.2): each position reads a weighted mean of the others.

B batch   L length   M length of what is read   D width   H heads   K head width   X = B H
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.cache import CACHE, MEMORY, keep, recall
from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Init, Part
from models.layers.masks import Mask
from models.layers.recompute import apart


def attend(q_BLHK, k_BMHK, v_BMHK, *, mask=None, bias=None, scale=None, drop=None, kept=False):
    """softmax(scale * q k' + bias) v, where mask is True; the softmax in float32, the result in the type of v.

    mask: a `Mask`, or bool; bias: float, each broadcastable to [B, H, L, M]; scale: K**-0.5 unless given; drop: a `Drop`, done to the weights.
    kept: k and v are [B, H, M, K], as a cache keeps them.
    A position that may read nothing gets the mean of all v, which is finite and so harmless to weigh with 0 later.
    """
    B, L, H, K = q_BLHK.shape
    scale = K**-0.5 if scale is None else scale
    if kept:  # every head as a row of its own: with any more dimensions XLA's CPU compiler transposes the cache
        q_XLK, k_XMK, v_XMK = (
            q_BLHK.swapaxes(1, 2).reshape(-1, L, K),
            *(x.reshape(-1, *x.shape[2:]) for x in (k_BMHK, v_BMHK)),
        )
        scores_BHLM = (
            jnp.einsum("xlk,xmk->xlm", q_XLK, k_XMK, preferred_element_type=jnp.float32).reshape(
                B, H, L, -1
            )
            * scale
        )
    else:
        scores_BHLM = (
            jnp.einsum("blhk,bmhk->bhlm", q_BLHK, k_BMHK, preferred_element_type=jnp.float32)
            * scale
        )
    if bias is not None:
        scores_BHLM += bias.astype(jnp.float32)
    if isinstance(mask, Mask):
        mask = mask.dense(*scores_BHLM.shape[-2:])
    if mask is not None:
        scores_BHLM = jnp.where(mask, scores_BHLM, jnp.finfo(jnp.float32).min)
    if kept:
        weights_XLM = _dropped(jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype), drop).reshape(
            B * H, L, -1
        )
        return jnp.einsum("xlm,xmk->xlk", weights_XLM, v_XMK).reshape(B, H, L, K).swapaxes(1, 2)
    return read(scores_BHLM, v_BMHK, drop)


@jax.custom_vjp
def read(scores_BHLM, v_BMHK, drop):
    """The mean of v by the softmax of float32 scores, dropped -> [B, L, H, K].

    Of a pair's numbers the way back keeps the softmax's weight alone, in the type of v, and drops it again; JAX keeps what came before and behind
    it, too.
    """
    return _forwards(scores_BHLM, v_BMHK, drop)[0]


def _mean(weights_BHLM, v_BMHK):
    return jnp.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def _dropped(weights_BHLM, drop):
    return weights_BHLM if drop is None else drop(weights_BHLM)


def _forwards(scores_BHLM, v_BMHK, drop):
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype)
    return _mean(_dropped(weights_BHLM, drop), v_BMHK), (weights_BHLM, v_BMHK, drop)


def _backwards(kept, gradient):
    weights_BHLM, v_BMHK, drop = kept
    weights_BHLM, drop, gradient = apart((weights_BHLM, drop, gradient))
    dropped_BHLM = _dropped(weights_BHLM, drop)
    (of_dropped_BHLM,) = jax.linear_transpose(lambda dropped: _mean(dropped, v_BMHK), dropped_BHLM)(
        gradient
    )
    (of_v_BMHK,) = jax.linear_transpose(lambda v: _mean(dropped_BHLM, v), v_BMHK)(gradient)
    weights_BHLM, of_weights_BHLM = (
        weights_BHLM.astype(jnp.float32),
        _dropped(of_dropped_BHLM, drop).astype(jnp.float32),
    )
    of_scores_BHLM = weights_BHLM * (
        of_weights_BHLM - (weights_BHLM * of_weights_BHLM).sum(-1, keepdims=True)
    )
    return of_scores_BHLM, of_v_BMHK, None


read.defvjp(_forwards, _backwards)


class Attention(nn.Module):
    """Project, `core`, project. A paper that changes the softmax passes its own `core`; x reads `memory`, or itself.

    While decoding, the keys and values of `models.layers.cache` are kept, and read again by the next words; rows of x that read
    the same memory, as those of a beam do, stand one behind the other.
    """

    num_heads: int
    head_width: int | None = None  # D / H unless given
    use_bias: bool = True
    kernel_init: Init = TRUNCATED
    query_init: Init | None = None  # `kernel_init` unless given
    out_init: Init | None = None  # `kernel_init` unless given
    dropout: Part = partial(Dropout, 0.0)  # on the attention weights
    core: Callable = attend

    @nn.compact
    def __call__(self, x_BLD, memory_BMD=None, train=False, mask=None, bias=None):
        D = x_BLD.shape[-1]
        if self.head_width is None and D % self.num_heads:
            raise ValueError(f"a width of {D} does not divide into {self.num_heads} heads")
        shape_HK = (self.num_heads, self.head_width or D // self.num_heads)
        project = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init)
        q_BLHK = project(shape_HK, kernel_init=self.query_init or self.kernel_init, name="query")(
            x_BLD
        )

        def keys_and_values():
            read_BMD = x_BLD if memory_BMD is None else memory_BMD
            return project(shape_HK, name="key")(read_BMD), project(shape_HK, name="value")(
                read_BMD
            )

        name = CACHE if memory_BMD is None else MEMORY
        if kept := recall(self, name, getattr(mask, "step", None), keys_and_values):
            k_BMHK, v_BMHK = kept
            q_BLHK = q_BLHK.reshape(len(k_BMHK), -1, *shape_HK)
        else:
            k_BMHK, v_BMHK = keys_and_values()
            keep(self, name, k_BMHK, v_BMHK)
        # A kernel that cannot drop must see None when there is nothing to drop.
        o_BLHK = self.core(
            q_BLHK,
            k_BMHK,
            v_BMHK,
            mask=mask,
            bias=bias,
            drop=self.dropout(deterministic=not train).draw(),
            kept=bool(kept),
        )
        o_BLHK = o_BLHK.reshape(*x_BLD.shape[:2], *shape_HK)
        return project(D, contract=2, kernel_init=self.out_init or self.kernel_init, name="out")(
            o_BLHK
        )
