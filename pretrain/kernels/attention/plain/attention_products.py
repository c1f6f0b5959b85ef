"""The products of attention, in the fastest way for each platform.

XLA's CPU compiler multiplies bfloat16 in float32, of which it makes copies, unless the result is of
float32: its fast library (YNNPACK) has only that product. It also leaves a product to a slow
library (Eigen) if the left factor is read transposed. So on a CPU results are of float32 and
rounded once, and the left factor is the one that is copied into another order of heads anyway.
Elsewhere these are `models.layers.ops.compute_scores` and `average_values`, and their gradients.

B batch   L length of queries   M length of keys   H heads   K head width
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from models.layers import ops


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
