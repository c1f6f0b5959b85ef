"""Matmuls with weights and sums with biases, in the fastest way for each platform.

I, O the input and output dimensions of a kernel, each may be several   N rows   ... any others
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from models.layers.dropout import KeyedDropout
from models.layers.ops import apply_linear
from pretrain.kernels.rematerialization import prevent_cse

Dims = tuple[int, ...]

# A float32 product with a kernel of so many outputs, and of so many if it has more inputs than
# outputs, takes less time with a transposed copy of its rows.
MIN_OUTPUTS, MIN_NARROW_OUTPUTS = 512, 768


def _find_contracted_axes(x: jax.Array, contract: int) -> tuple[Dims, Dims]:
    """Return the contracted dimensions: the last ones of x and the first ones of a kernel."""
    return tuple(range(x.ndim - contract, x.ndim)), tuple(range(contract))


def _matmul_in_float32(a: jax.Array, b: jax.Array, dims: tuple[Dims, Dims]) -> jax.Array:
    """Return the product of a and b in float32. dims: the contracted dimensions."""
    return jax.lax.dot_general(a, b, (dims, ((), ())), preferred_element_type=jnp.float32)


def sum_rows_by_product(x_NO: jax.Array) -> jax.Array:
    """Return the sums over the rows as a product with ones, [1, O] in float32.

    XLA's CPU compiler sums rows of more than some ten thousand numbers 10 to 50 times as slowly.
    """
    return _matmul_in_float32(jnp.ones((1, x_NO.shape[0]), x_NO.dtype), x_NO, ((1,), (0,)))


def _reshape_to_matrices(
    x: jax.Array, kernel: jax.Array, contract: int
) -> tuple[jax.Array, jax.Array]:
    """Return x as [N, I] and the kernel as [I, O]; both may have more dimensions."""
    I = math.prod(kernel.shape[:contract])
    return x.reshape(-1, I), kernel.reshape(I, -1)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def matmul(
    x: jax.Array, kernel: jax.Array, num_contracting_dims: int = 1, out_dtype: Any = None
) -> jax.Array:
    """Return x [..., I] @ kernel [I, O], as `models.layers.ops.apply_linear`.

    On a CPU three things differ from `jax.lax.dot_general` and its gradient; elsewhere nothing.

    - A bfloat16 product is computed in float32 and rounded afterwards, which takes half the time
      with XLA's CPU compiler. So are its gradients, from a gradient that is rounded to
      bfloat16 first.
    - float32 arrays are multiplied as matrices. Otherwise rows or kernels of several dimensions are
      transposed into copies first, which takes a tenth of a step of GPT-2. With bfloat16 those
      copies make the product fast.
    - The gradient of the kernel is a product of a transposed copy; see
      `_compute_kernel_gradient` and `_compute_narrow_kernel_gradient`.

    Args:
      num_contracting_dims: number of dimensions I.
      out_dtype: dtype of the product, by default x's.
    """

    def on_cpu(x: jax.Array, kernel: jax.Array) -> jax.Array:
        if x.dtype == jnp.bfloat16:
            return _matmul_in_float32(
                x, kernel, _find_contracted_axes(x, num_contracting_dims)
            ).astype(out_dtype or x.dtype)
        x_NI, kernel_IO = _reshape_to_matrices(x, kernel, num_contracting_dims)
        return apply_linear(x_NI, kernel_IO, 1, out_dtype).reshape(
            *x.shape[: x.ndim - num_contracting_dims], *kernel.shape[num_contracting_dims:]
        )

    return jax.lax.platform_dependent(
        x,
        kernel,
        cpu=on_cpu,
        default=lambda x, kernel: apply_linear(x, kernel, num_contracting_dims, out_dtype),
    )


def _matmul_fwd(
    x: jax.Array, kernel: jax.Array, contract: int, result: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return matmul(x, kernel, contract, result), (x, kernel)


def _compute_kernel_gradient(x_NI: jax.Array, gradient_NO: jax.Array) -> jax.Array:
    """Return the gradient of a float32 kernel, [I, O], on a CPU.

    XLA multiplies matrices by YNNPACK, but by Eigen if the left factor is read transposed, at 60 to
    94 % of the rate. A transposed copy costs less if each of its numbers is used often
    enough. The barrier prevents that XLA removes the copy. Elsewhere the smaller of the two factors
    is transposed, where JAX would transpose the incoming gradient.
    """
    rows = ((0,), (0,))
    I, O = x_NI.shape[1], gradient_NO.shape[1]
    if O >= (MIN_OUTPUTS if I <= O else MIN_NARROW_OUTPUTS):
        x_IN = jax.lax.optimization_barrier(x_NI.T)
        return _matmul_in_float32(x_IN, gradient_NO, ((1,), (0,)))
    if I < O:
        return _matmul_in_float32(x_NI, gradient_NO, rows)
    return _matmul_in_float32(gradient_NO, x_NI, rows).T


def _compute_narrow_kernel_gradient(
    x: jax.Array, kernel: jax.Array, gradient: jax.Array, num_rows: int
) -> jax.Array:
    """Return the gradient of a bfloat16 kernel, shaped like it, in float32, on a CPU.

    XLA copies the left factor transposed, and computes an activation function inside that copy,
    which then takes ten times as long. If x is the largest of the three arrays, as in the second
    layer of an MLP, the incoming gradient is transposed instead, and the result. The barriers
    prevent that XLA exchanges the two factors, for which it has no product of bfloat16, and that
    the optimizer reads the result against its order in memory.

    Args:
      num_rows: number of dimensions of x before those that the kernel contracts.
    """
    row_dims = tuple(range(num_rows))
    rows = row_dims, row_dims
    if x.size <= max(gradient.size, kernel.size):
        return _matmul_in_float32(x, gradient, rows)
    num_outputs = gradient.ndim - num_rows
    transposed = jax.lax.optimization_barrier(_matmul_in_float32(gradient, x, rows))
    axes = (*range(num_outputs, transposed.ndim), *range(num_outputs))
    return jax.lax.optimization_barrier(transposed.transpose(axes))


def _matmul_bwd(
    contract: int, result: Any, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return (gradient of x, gradient of the kernel)."""

    def on_cpu(x: jax.Array, kernel: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
        gradient = gradient.astype(x.dtype)
        if x.dtype == jnp.bfloat16:
            num_rows = x.ndim - contract
            dx = _matmul_in_float32(
                gradient,
                kernel,
                (tuple(range(num_rows, gradient.ndim)), tuple(range(contract, kernel.ndim))),
            )
            dkernel = _compute_narrow_kernel_gradient(x, kernel, gradient, num_rows)
            return dx.astype(x.dtype), dkernel.astype(kernel.dtype)
        x_NI, kernel_IO = _reshape_to_matrices(x, kernel, contract)
        gradient_NO = gradient.reshape(-1, kernel_IO.shape[1])
        dx = _matmul_in_float32(gradient_NO, kernel_IO, ((1,), (1,)))
        dkernel = _compute_kernel_gradient(x_NI, gradient_NO)
        dx = dx.astype(x.dtype).reshape(x.shape)
        return dx, dkernel.astype(kernel.dtype).reshape(kernel.shape)

    def on_accelerator(
        x: jax.Array, kernel: jax.Array, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        transpose_x = jax.linear_transpose(lambda x: apply_linear(x, kernel, contract, result), x)
        transpose_kernel = jax.linear_transpose(
            lambda kernel: apply_linear(x, kernel, contract, result), kernel
        )
        (dx,), (dkernel,) = transpose_x(gradient), transpose_kernel(gradient)
        return dx, dkernel

    return jax.lax.platform_dependent(*residuals, gradient, cpu=on_cpu, default=on_accelerator)


matmul.defvjp(_matmul_fwd, _matmul_bwd)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def matmul_on_gpu(
    x: jax.Array, kernel: jax.Array, num_contracting_dims: int = 1, out_dtype: Any = None
) -> jax.Array:
    """Return `matmul`, for a GPU: its gradients are products in the dtype of x.

    Those of float32 logits of bfloat16 states are products in TF32 otherwise. The incoming gradient
    is rounded first.
    """
    return apply_linear(x, kernel, num_contracting_dims, out_dtype)


def _matmul_on_gpu_bwd(
    contract: int, out_dtype: Any, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return (gradient of x, gradient of the kernel)."""
    _, transpose = jax.vjp(lambda x, kernel: apply_linear(x, kernel, contract), *residuals)
    return transpose(gradient.astype(residuals[0].dtype))


matmul_on_gpu.defvjp(
    lambda x, kernel, *options: (matmul_on_gpu(x, kernel, *options), (x, kernel)),
    _matmul_on_gpu_bwd,
)


@partial(jax.custom_vjp, nondiff_argnums=(0, 4, 5))
def activation_matmul(
    activation: Callable[..., jax.Array],
    inputs: tuple[jax.Array, ...],
    drop: KeyedDropout | None,
    kernel: jax.Array,
    num_contracting_dims: int = 1,
    out_dtype: Any = None,
) -> jax.Array:
    """Return drop(act(*read)) @ kernel, as `models.layers.ops.apply_activation_linear`.

    The backward pass saves only `read` and `kernel`, and recomputes `act` and `drop`.
    """
    return matmul(
        _apply_activation(activation, drop, *inputs), kernel, num_contracting_dims, out_dtype
    )


def _apply_activation(
    act: Callable[..., jax.Array], drop: KeyedDropout | None, *read: jax.Array
) -> jax.Array:
    x = act(*read)
    return x if drop is None else drop(x)


def _activation_matmul_fwd(
    act: Callable[..., jax.Array],
    read: tuple[jax.Array, ...],
    drop: KeyedDropout | None,
    kernel: jax.Array,
    contract: int,
    result: Any,
) -> tuple[jax.Array, tuple[Any, ...]]:
    return activation_matmul(act, read, drop, kernel, contract, result), (read, drop, kernel)


def _activation_matmul_bwd(
    act: Callable[..., jax.Array],
    contract: int,
    result: Any,
    residuals: tuple[Any, ...],
    gradient: jax.Array,
) -> tuple[tuple[jax.Array, ...], None, jax.Array]:
    """Return the gradients of `read`, `drop` (None) and `kernel`."""
    read, drop, kernel = residuals
    read, drop, gradient = prevent_cse((read, drop, gradient))
    x, pull_back = jax.vjp(partial(_apply_activation, act, drop), *read)
    dx, dkernel = _matmul_bwd(contract, result, (x, kernel), gradient)
    return pull_back(dx), None, dkernel


activation_matmul.defvjp(_activation_matmul_fwd, _activation_matmul_bwd)


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x [..., O] + bias [O], of the same dtype. The bias's gradient is summed in float32.

    On a CPU the gradient of few long rows, such as the logits of all tokens, is computed as a
    product with ones: XLA's CPU compiler takes several times as long for their sum, and for any sum
    over rows in bfloat16.
    """
    return x + bias


def _add_bias_bwd(bias: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (gradient of x, gradient of the bias)."""

    def on_cpu(gradient: jax.Array) -> jax.Array:
        gradient_NO = gradient.reshape(-1, bias.size)
        if len(gradient_NO) >= bias.size:
            return on_accelerator(gradient)
        return sum_rows_by_product(gradient_NO).astype(bias.dtype).reshape(bias.shape)

    def on_accelerator(gradient: jax.Array) -> jax.Array:
        row_dims = tuple(range(gradient.ndim - bias.ndim))
        return gradient.sum(row_dims, dtype=jnp.float32).astype(bias.dtype)

    return gradient, jax.lax.platform_dependent(gradient, cpu=on_cpu, default=on_accelerator)


add_bias.defvjp(lambda x, bias: (x + bias, bias), _add_bias_bwd)
