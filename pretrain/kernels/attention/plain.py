"""The plain equations of attention, in the fastest way that XLA has.

The backward pass saves one number per pair of positions. On a CPU:

- XLA multiplies bfloat16 in float32, of which it makes copies, unless the result is of float32: its
  fast library (YNNPACK) has only that product. It also leaves a product to a slow library (Eigen)
  if the left factor is read transposed. So results are of float32 and rounded once, and the left
  factor is the one that is copied into another order of heads anyway. Elsewhere the products are
  `models.layers.ops.compute_scores` and `weigh_values`, and their gradients.
- XLA computes a product with batch dimensions, such as the scores of all heads, on one core. So
  the rows are attended in two parts: two chains of operations that do not wait for each other, and
  run on two cores.

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
from pretrain.kernels.hash_dropout import drop_by_hash, take_dropout_part
from pretrain.kernels.matmul import sum_rows_by_product
from pretrain.kernels.rematerialization import prevent_cse

NUM_PARTS = 2
# A product of fewer multiplications takes less than a millisecond, and parts cost time to compile.
MIN_MULTIPLICATIONS = 1 << 24


def _multiply(a: jax.Array, b: jax.Array, spec: str) -> jax.Array:
    """Return the product of a and b in float32, by an `einsum` that keeps their order."""
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


def _sum_over_keys(weights_BHLM: jax.Array, x_BMHK: jax.Array) -> jax.Array:
    """Return [B, L, H, K] in the dtype of x, on a CPU."""
    return _multiply(weights_BHLM, x_BMHK, "bhlm,bmhk->blhk").astype(x_BMHK.dtype)


def _sum_over_queries(weights_BHLM: jax.Array, x_BLHK: jax.Array) -> jax.Array:
    """Return [B, M, H, K] in the dtype of x, on a CPU."""
    sums_BHKM = _multiply(x_BLHK, weights_BHLM, "blhk,bhlm->bhkm")
    return sums_BHKM.transpose(0, 3, 1, 2).astype(x_BLHK.dtype)


# ---- scores ---------------------------------------------------------------------


@jax.custom_vjp
def compute_scores(q_BLHK: jax.Array, k_BMHK: jax.Array) -> jax.Array:
    """Return q k^T, as `models.layers.ops.compute_scores`.

    On a CPU its incoming gradient is rounded to the dtype of q first.
    """
    return ops.compute_scores(q_BLHK, k_BMHK)


def _compute_scores_bwd(
    residuals: tuple[jax.Array, jax.Array], gradient_BHLM: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return (gradient of q, gradient of k)."""

    def on_cpu(
        q_BLHK: jax.Array, k_BMHK: jax.Array, gradient_BHLM: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        gradient_BHLM = gradient_BHLM.astype(q_BLHK.dtype)
        return _sum_over_keys(gradient_BHLM, k_BMHK), _sum_over_queries(gradient_BHLM, q_BLHK)

    def on_accelerator(
        q_BLHK: jax.Array, k_BMHK: jax.Array, gradient_BHLM: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        (dq_BLHK,) = jax.linear_transpose(lambda q: ops.compute_scores(q, k_BMHK), q_BLHK)(
            gradient_BHLM
        )
        (dk_BMHK,) = jax.linear_transpose(lambda k: ops.compute_scores(q_BLHK, k), k_BMHK)(
            gradient_BHLM
        )
        return dq_BLHK, dk_BMHK

    return jax.lax.platform_dependent(*residuals, gradient_BHLM, cpu=on_cpu, default=on_accelerator)


compute_scores.defvjp(lambda q, k: (ops.compute_scores(q, k), (q, k)), _compute_scores_bwd)


# ---- sums of values ---------------------------------------------------------------


def weigh_values(weights_BHLM: jax.Array, v_BMHK: jax.Array) -> jax.Array:
    """Return the weighted sums of the values, [B, L, H, K] in the dtype of v."""
    return jax.lax.platform_dependent(
        weights_BHLM, v_BMHK, cpu=_sum_over_keys, default=ops.weigh_values
    )


def compute_weigh_values_gradients(
    weights_BHLM: jax.Array, v_BMHK: jax.Array, gradient_BLHK: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the gradients of the weights and of the values."""

    def on_cpu(
        weights_BHLM: jax.Array, v_BMHK: jax.Array, gradient_BLHK: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        d_weights_BHLM = _multiply(gradient_BLHK, v_BMHK, "blhk,bmhk->bhlm")
        return d_weights_BHLM.astype(weights_BHLM.dtype), _sum_over_queries(
            weights_BHLM, gradient_BLHK
        )

    def on_accelerator(
        weights_BHLM: jax.Array, v_BMHK: jax.Array, gradient_BLHK: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        (d_weights_BHLM,) = jax.linear_transpose(
            lambda weights: ops.weigh_values(weights, v_BMHK), weights_BHLM
        )(gradient_BLHK)
        (dv_BMHK,) = jax.linear_transpose(lambda v: ops.weigh_values(weights_BHLM, v), v_BMHK)(
            gradient_BLHK
        )
        return d_weights_BHLM, dv_BMHK

    return jax.lax.platform_dependent(
        weights_BHLM, v_BMHK, gradient_BLHK, cpu=on_cpu, default=on_accelerator
    )


# ---- softmax --------------------------------------------------------------------


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
    soft_cap: float | None = None,
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
        soft_cap=soft_cap,
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


# ---- parts of the rows, on a CPU --------------------------------------------------


def attend_in_parts(
    q_BLHK: jax.Array,
    k_BMGK: jax.Array,
    v_BMGK: jax.Array,
    *,
    mask: Mask | jax.Array | None = None,
    bias: jax.Array | PairBias | None = None,
    scale: float | None = None,
    soft_cap: float | None = None,
    drop: KeyedDropout | None = None,
) -> jax.Array:
    """Compute `attend`, in parts of the rows where that takes less time."""
    v_BMGK, drop = move_shared_dropout(q_BLHK, v_BMGK, mask, bias, drop)
    bias = make_dense_bias(bias)
    attend_part = partial(attend, scale=scale, soft_cap=soft_cap)
    if not _is_splittable(q_BLHK, k_BMGK, mask, bias, drop):
        return attend_part(q_BLHK, k_BMGK, v_BMGK, mask=mask, bias=bias, drop=drop)
    B = q_BLHK.shape[0]

    def split(x: jax.Array) -> list[jax.Array]:
        return jnp.split(x, NUM_PARTS) if x.shape[0] == B else [x] * NUM_PARTS

    rules = mask if isinstance(mask, Mask) else _add_leading_axes(mask)
    whole = (q_BLHK, k_BMGK, v_BMGK), rules, _add_leading_axes(bias)
    leaves, structure = jax.tree.flatten(whole)
    outputs = []
    for part, part_leaves in enumerate(zip(*map(split, leaves), strict=True)):
        arrays, part_mask, part_bias = jax.tree.unflatten(structure, part_leaves)
        part_drop = drop and take_dropout_part(drop, part * B // NUM_PARTS)
        outputs.append(attend_part(*arrays, mask=part_mask, bias=part_bias, drop=part_drop))
    return jnp.concatenate(outputs)


def _add_leading_axes(x: jax.Array | None) -> jax.Array | None:
    """Return an array that broadcasts to [B, H, L, M] with all four axes."""
    return None if x is None else x.reshape((1,) * (4 - x.ndim) + x.shape)


def _is_splittable(
    q_BLHK: jax.Array, k_BMGK: jax.Array, mask: Any, bias: Any, drop: KeyedDropout | None
) -> bool:
    """Return whether `attend` scores all pairs of enough rows, and each row by itself."""
    B, L, H, K = q_BLHK.shape
    M = k_BMGK.shape[1]
    if not isinstance(B, int) or B % NUM_PARTS or B * H * L * M * K < MIN_MULTIPLICATIONS:
        return False
    if isinstance(mask, Mask) and (
        mask.step is not None or mask.chunks is not None or mask.find_block_pattern(L, M)
    ):
        return False
    return drop is None or (drop.drop_fn is drop_by_hash and not drop.broadcast_dims)
