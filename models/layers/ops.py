"""The operations of the layers, as their equations.

A trainer may replace each by one that is faster on its devices, with the same signature and, up to
rounding, the same values.

B batch   L query length   M key length   H heads   G key heads   K head width   D width
V rows of a table   P positions   I input features   O output features, each may be several
dimensions
... any leading axes
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.layers.masks import Mask, PairBias, make_dense_bias


def apply_linear(
    x: jax.Array, kernel: jax.Array, num_contracting_dims: int = 1, out_dtype: Any = None
) -> jax.Array:
    """Return x [..., I] @ kernel [I, O], shape [..., O].

    Args:
      x: the input.
      kernel: the weights.
      num_contracting_dims: the number of dimensions I.
      out_dtype: the dtype of the output, by default x's.
    """
    last, first = (
        tuple(range(x.ndim - num_contracting_dims, x.ndim)),
        tuple(range(num_contracting_dims)),
    )
    return jax.lax.dot_general(
        x, kernel, ((last, first), ((), ())), preferred_element_type=out_dtype
    )


def apply_activation_linear(
    activation: Callable[..., jax.Array],
    inputs: tuple[jax.Array, ...],
    drop: Callable[[jax.Array], jax.Array] | None,
    kernel: jax.Array,
    num_contracting_dims: int = 1,
    out_dtype: Any = None,
) -> jax.Array:
    """Return drop(activation(*inputs)) @ kernel, shape [..., O].

    Args:
      activation: an activation.
      inputs: the arguments of the activation, each [..., I].
      drop: a `models.layers.dropout.KeyedDropout`, or None.
      kernel: the weights [I, O].
      num_contracting_dims: the number of dimensions I.
      out_dtype: the dtype of the output, by default the activation's.
    """
    x = activation(*inputs)
    return apply_linear(x if drop is None else drop(x), kernel, num_contracting_dims, out_dtype)


def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x [..., O] + bias [O]."""
    return x + bias


def take_rows(table_VD: jax.Array, ids: jax.Array) -> jax.Array:
    """Return the rows of int32 ids [...], shape [..., D]; NaN for an id outside of the table."""
    return jnp.take(table_VD, ids, axis=0, mode="fill")


def take_positions(x_BLD: jax.Array, positions_BP: jax.Array) -> jax.Array:
    """Return the states at positions of their row, shape [B, P, D]."""
    return jnp.take_along_axis(x_BLD, positions_BP[..., None], axis=1)


def leave_unchanged(x: Any) -> Any:
    """Return x."""
    return x


def drop_values(
    x: jax.Array, key: jax.Array, rate: float, shape: tuple[int, ...], by_row: bool = True
) -> jax.Array:
    """Return x / (1 - rate), each value 0 with probability `rate` (Srivastava et al. 2014, sec. 4).

    Args:
      x: the activations.
      key: the two uint32 of a key.
      rate: the probability of 0, below 1.
      shape: the shape of x, with 1 for each axis along which one draw is broadcast.
      by_row: whether the first axis is the batch, so that each row has draws of its own. A
        trainer that runs a model on a part of the rows draws what the whole batch would for them.
    """
    keep_mask = jax.random.bernoulli(jax.random.wrap_key_data(key), 1 - rate, shape)
    return jnp.where(keep_mask, x / jnp.asarray(1 - rate, x.dtype), jnp.zeros((), x.dtype))


def keep_rows(key: jax.Array, share: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return bool of `shape`, [B, 1, ...]: True with probability `share`, drawn for each row.

    key: a random key.
    """
    return jax.random.bernoulli(key, share, shape)


def compute_scores(q_BLHK: jax.Array, k_BMHK: jax.Array) -> jax.Array:
    """Return q k^T, shape [B, H, L, M], in float32."""
    return jnp.einsum("blhk,bmhk->bhlm", q_BLHK, k_BMHK, preferred_element_type=jnp.float32)


def average_values(
    scores_BHLM: jax.Array,
    v_BMHK: jax.Array,
    drop: Callable[[jax.Array], jax.Array] | None,
) -> jax.Array:
    """Return softmax(scores) v, shape [B, L, H, K], in the dtype of v.

    Args:
      scores_BHLM: float32.
      v_BMHK: the values.
      drop: applied to the attention weights, or None.
    """
    weights_BHLM = jax.nn.softmax(scores_BHLM).astype(v_BMHK.dtype)
    if drop is not None:
        weights_BHLM = drop(weights_BHLM)
    return weigh_values(weights_BHLM, v_BMHK)


def weigh_values(weights_BHLM: jax.Array, v_BMHK: jax.Array) -> jax.Array:
    """Return weights v, shape [B, L, H, K]."""
    return jnp.einsum("bhlm,bmhk->blhk", weights_BHLM, v_BMHK)


def cap_values(x: jax.Array, cap: float | None) -> jax.Array:
    """Return cap * tanh(x / cap), between -cap and cap (Gemma 2, section 2); x without a cap."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def mask_scores(
    scores_BHLM: jax.Array, mask: Mask | jax.Array | None, bias: jax.Array | PairBias | None
) -> jax.Array:
    """Return scores + bias where `mask` is True and the least float elsewhere, float32.

    mask, bias: as in `attend`.
    """
    bias_BHLM = make_dense_bias(bias)
    if bias_BHLM is not None:
        scores_BHLM += bias_BHLM.astype(jnp.float32)
    if isinstance(mask, Mask):
        _, H, L, M = scores_BHLM.shape
        mask = mask.make_dense(L, M, H)
    if mask is not None:
        scores_BHLM = jnp.where(mask, scores_BHLM, jnp.finfo(jnp.float32).min)
    return scores_BHLM


def repeat_heads(x_BMGK: jax.Array, num_heads: int) -> jax.Array:
    """Return grouped keys or values once for each query head, [B, M, H, K] (Ainslie et al. 2023).

    num_heads: H, a multiple of G. Key head g serves query heads g H/G to (g + 1) H/G - 1.
    """
    B, M, G, K = x_BMGK.shape
    if num_heads == G:
        return x_BMGK
    repeated = jnp.broadcast_to(x_BMGK[:, :, :, None], (B, M, G, num_heads // G, K))
    return repeated.reshape(B, M, num_heads, K)


def attend(
    q_BLHK: jax.Array,
    k_BMGK: jax.Array,
    v_BMGK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | PairBias | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    drop: Callable[[jax.Array], jax.Array] | None = None,
    score: Callable[..., jax.Array] = compute_scores,
    average: Callable[..., jax.Array] = average_values,
) -> jax.Array:
    """Return softmax(scale * q k^T + bias) v (Vaswani et al. 2017, section 3.2.1).

    A sparse pattern or a window is computed in blocks (`models.layers.block_sparse`), chunks
    of sorted keys in these (`models.layers.long_rows.key_chunks`).

    Args:
      q_BLHK: the queries.
      k_BMGK: the keys; fewer heads than the queries' where several share keys.
      v_BMGK: the values.
      mask: a `Mask`, or bool broadcastable to [B, H, L, M]; True where a query may attend to a key.
      bias: float broadcastable to [B, H, L, M], or a `PairBias`; added to the scores.
      scale: factor of the scores; K ** -0.5 by default.
      soft_cap: what `cap_values` bounds the scaled scores to, before the bias; None: no bound.
      drop: a `models.layers.dropout.KeyedDropout` of the attention weights, or None.
      score: a function with the signature of `compute_scores`.
      average: a function with the signature of `average_values`.

    Returns:
      [B, L, H, K] in the dtype of v.

    Scores and softmax are float32. A query that may attend to nothing gets the mean of all values,
    which is finite; its loss has weight 0.

    Raises:
      ValueError: a soft cap with chunks of sorted keys.
    """
    L, H = q_BLHK.shape[1:3]
    k_BMHK, v_BMHK = repeat_heads(k_BMGK, H), repeat_heads(v_BMGK, H)
    M = k_BMHK.shape[1]
    if isinstance(mask, Mask) and bias is None and (pattern := mask.find_block_pattern(L, M)):
        ids = mask.combine_segment_ids(*q_BLHK.shape[:2])
        cap = partial(cap_values, cap=soft_cap)
        return pattern.attend(
            q_BLHK, k_BMHK, v_BMHK, segment_ids=ids, scale=scale, cap=cap, drop=drop
        )
    if isinstance(mask, Mask) and mask.chunks is not None and mask.step is None and bias is None:
        if soft_cap is not None:
            raise ValueError("chunks of sorted keys have no soft cap of their scores")
        ids = mask.combine_segment_ids(*q_BLHK.shape[:2])
        return mask.chunks.attend(q_BLHK, k_BMHK, v_BMHK, segment_ids=ids, scale=scale, drop=drop)
    factor: float = q_BLHK.shape[-1] ** -0.5 if scale is None else scale
    scores_BHLM = cap_values(score(q_BLHK, k_BMHK) * factor, soft_cap)
    return average(mask_scores(scores_BHLM, mask, bias), v_BMHK, drop)


# (a layer of the stacked arrays, arrays of all layers, x [B, L, D], choices) -> (y, choices)
Residual = Callable[..., tuple[jax.Array, Any]]


def apply_reversible(
    residuals: Sequence[Residual],
    layers: Any,
    shared: Any,
    x1_BLD: jax.Array,
    x2_BLD: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the outputs of a reversible stack (Gomez et al. 2017; Kitaev et al. 2020, section 3).

    For the residuals F, G of each layer: y1 = x1 + F(x2), y2 = x2 + G(y1). The inputs follow from
    the outputs, x2 = y2 - G(y1), x1 = y1 - F(x2): a backward pass needs no others.

    Args:
      residuals: an even number of functions, F, G and so on, of which each takes the other stream
        than the one before. They also return their discrete choices, such as buckets, and take
        the choices of an earlier call instead of None.
      layers: the parameters of each layer and its random key as data, with a leading axis of
        layers, as {"params": floats, "key": integers}.
      shared: integers or booleans that all layers read; a pytree.
      x1_BLD: the first stream.
      x2_BLD: the second stream.
    """

    def apply_layer(
        streams: tuple[jax.Array, jax.Array], layer: Any
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        for residual in residuals:
            x, y = streams
            streams = y, x + residual(layer, shared, y, None)[0]
        return streams, None

    return jax.lax.scan(apply_layer, (x1_BLD, x2_BLD), layers)[0]


class Ops(NamedTuple):
    """The operations that a trainer may replace in every layer of a model.

    Each field has the signature of its default.

    linear: a matmul with weights.
    activation_linear: a matmul of a dropped activation, which the backward pass may recompute.
    add_bias: the addition of a bias.
    take_rows: the rows of a table, such as embeddings of tokens.
    take_positions: states at positions, such as the masked ones.
    recompute: takes a function of arrays and returns one with the same values, whose intermediates
      the backward pass may recompute.
    drop: dropout.
    keep_rows: the draws that skip a sublayer for whole rows.
    attend: attention.
    constrain: applied to the activations [B, L, D] at the top of each layer, to set their sharding.
    apply_reversible: a reversible stack.
    """

    linear: Callable[..., jax.Array] = apply_linear
    activation_linear: Callable[..., jax.Array] = apply_activation_linear
    add_bias: Callable[[jax.Array, jax.Array], jax.Array] = add_bias
    take_rows: Callable[[jax.Array, jax.Array], jax.Array] = take_rows
    take_positions: Callable[[jax.Array, jax.Array], jax.Array] = take_positions
    recompute: Callable[[Callable[..., jax.Array]], Callable[..., jax.Array]] = leave_unchanged
    drop: Callable[..., jax.Array] = drop_values
    keep_rows: Callable[..., jax.Array] = keep_rows
    attend: Callable[..., jax.Array] = attend
    constrain: Callable[[jax.Array], jax.Array] = leave_unchanged
    apply_reversible: Callable[..., tuple[jax.Array, jax.Array]] = apply_reversible


PLAIN = Ops()
