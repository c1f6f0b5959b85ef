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

from models.layers.dropout import Drop
from models.layers.ops import apply_linear
from pretrain.distributed.ops.recompute import separate

Dims = tuple[int, ...]


def _ends(x: jax.Array, contract: int) -> tuple[Dims, Dims]:
    """Return the contracted dimensions: the last ones of x and the first ones of a kernel."""
    return tuple(range(x.ndim - contract, x.ndim)), tuple(range(contract))


def _wide(a: jax.Array, b: jax.Array, dims: tuple[Dims, Dims]) -> jax.Array:
    """Return the product of a and b in float32. dims: the contracted dimensions."""
    return jax.lax.dot_general(a, b, (dims, ((), ())), preferred_element_type=jnp.float32)


def _matrices(x: jax.Array, kernel: jax.Array, contract: int) -> tuple[jax.Array, jax.Array]:
    """Return x as [N, I] and the kernel as [I, O]; both may have more dimensions."""
    I = math.prod(kernel.shape[:contract])
    return x.reshape(-1, I), kernel.reshape(I, -1)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def multiply(x: jax.Array, kernel: jax.Array, contract: int = 1, result: Any = None) -> jax.Array:
    """Return x [..., I] @ kernel [I, O], as `models.layers.ops.apply_linear`.

    On a CPU three things differ from `jax.lax.dot_general` and its gradient; elsewhere nothing.

    - A bfloat16 product is computed in float32 and rounded afterwards, which takes half the time
      with XLA's CPU compiler (LOG.md). So are its gradients, from a gradient that is rounded to
      bfloat16 first.
    - float32 arrays are multiplied as matrices. Otherwise rows or kernels of several dimensions are
      transposed into copies first, which takes a tenth of a step of GPT-2. With bfloat16 those
      copies make the product fast.
    - The float32 gradient of the kernel transposes the smaller of its two factors. JAX transposes
      the incoming gradient, which takes a fifth of a step of BERT-base.

    Args:
      contract: number of dimensions I.
      result: dtype of the product; that of x by default.
    """

    def on_cpu(x: jax.Array, kernel: jax.Array) -> jax.Array:
        if x.dtype == jnp.bfloat16:
            return _wide(x, kernel, _ends(x, contract)).astype(result or x.dtype)
        x_NI, kernel_IO = _matrices(x, kernel, contract)
        return apply_linear(x_NI, kernel_IO, 1, result).reshape(
            *x.shape[: x.ndim - contract], *kernel.shape[contract:]
        )

    return jax.lax.platform_dependent(
        x,
        kernel,
        cpu=on_cpu,
        default=lambda x, kernel: apply_linear(x, kernel, contract, result),
    )


def _forwards(
    x: jax.Array, kernel: jax.Array, contract: int, result: Any
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return multiply(x, kernel, contract, result), (x, kernel)


def _backwards(
    contract: int, result: Any, residuals: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return (gradient of x, gradient of the kernel)."""

    def on_cpu(x: jax.Array, kernel: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
        gradient = gradient.astype(x.dtype)
        if x.dtype == jnp.bfloat16:
            num_rows, num_outputs = x.ndim - contract, kernel.ndim - contract
            outputs = tuple(range(num_rows, num_rows + num_outputs))
            dx = _wide(gradient, kernel, (outputs, tuple(range(contract, kernel.ndim))))
            # XLA cannot multiply bfloat16 into float32 in the order that it makes of the transposed
            # product (JAX 0.10.2).
            rows = tuple(range(num_rows))
            dkernel = _wide(x, gradient, (rows, rows))
            return dx.astype(x.dtype), dkernel.astype(kernel.dtype)
        x_NI, kernel_IO = _matrices(x, kernel, contract)
        gradient_NO = gradient.reshape(-1, kernel_IO.shape[1])
        dx = _wide(gradient_NO, kernel_IO, ((1,), (1,)))
        if kernel_IO.shape[0] < kernel_IO.shape[1]:
            dkernel = _wide(x_NI, gradient_NO, ((0,), (0,)))
        else:
            dkernel = _wide(gradient_NO, x_NI, ((0,), (0,))).T
        dx = dx.astype(x.dtype).reshape(x.shape)
        return dx, dkernel.astype(kernel.dtype).reshape(kernel.shape)

    def elsewhere(
        x: jax.Array, kernel: jax.Array, gradient: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        transpose_x = jax.linear_transpose(lambda x: apply_linear(x, kernel, contract, result), x)
        transpose_kernel = jax.linear_transpose(
            lambda kernel: apply_linear(x, kernel, contract, result), kernel
        )
        (dx,), (dkernel,) = transpose_x(gradient), transpose_kernel(gradient)
        return dx, dkernel

    return jax.lax.platform_dependent(*residuals, gradient, cpu=on_cpu, default=elsewhere)


multiply.defvjp(_forwards, _backwards)


@partial(jax.custom_vjp, nondiff_argnums=(0, 4, 5))
def multiply_activation(
    act: Callable[..., jax.Array],
    read: tuple[jax.Array, ...],
    drop: Drop | None,
    kernel: jax.Array,
    contract: int = 1,
    result: Any = None,
) -> jax.Array:
    """Return drop(act(*read)) @ kernel, as `models.layers.ops.apply_activation_linear`.

    The backward pass saves only `read` and `kernel`, and recomputes `act` and `drop`.
    """
    return multiply(_activate(act, drop, *read), kernel, contract, result)


def _activate(act: Callable[..., jax.Array], drop: Drop | None, *read: jax.Array) -> jax.Array:
    x = act(*read)
    return x if drop is None else drop(x)


def _forwards_of(
    act: Callable[..., jax.Array],
    read: tuple[jax.Array, ...],
    drop: Drop | None,
    kernel: jax.Array,
    contract: int,
    result: Any,
) -> tuple[jax.Array, tuple[Any, ...]]:
    return multiply_activation(act, read, drop, kernel, contract, result), (read, drop, kernel)


def _backwards_of(
    act: Callable[..., jax.Array],
    contract: int,
    result: Any,
    residuals: tuple[Any, ...],
    gradient: jax.Array,
) -> tuple[tuple[jax.Array, ...], None, jax.Array]:
    """Return the gradients of `read`, `drop` (None) and `kernel`."""
    read, drop, kernel = residuals
    read, drop, gradient = separate((read, drop, gradient))
    x, pull_back = jax.vjp(partial(_activate, act, drop), *read)
    dx, dkernel = _backwards(contract, result, (x, kernel), gradient)
    return pull_back(dx), None, dkernel


multiply_activation.defvjp(_forwards_of, _backwards_of)


@jax.custom_vjp
def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """Return x [..., O] + bias [O], of the same dtype. The bias's gradient is summed in float32.

    On a CPU the gradient of few long rows, such as the logits of all tokens, is computed as a
    product with ones: XLA's CPU compiler takes several times as long for their sum, and for any sum
    over rows in bfloat16 (LOG.md).
    """
    return x + bias


def _sum_of_rows(bias: jax.Array, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return (gradient of x, gradient of the bias)."""

    def on_cpu(gradient: jax.Array) -> jax.Array:
        gradient_NO = gradient.reshape(-1, bias.size)
        if len(gradient_NO) >= bias.size:
            return elsewhere(gradient)
        ones = jnp.ones((1, len(gradient_NO)), gradient_NO.dtype)
        return _wide(ones, gradient_NO, ((1,), (0,))).astype(bias.dtype).reshape(bias.shape)

    def elsewhere(gradient: jax.Array) -> jax.Array:
        row_dims = tuple(range(gradient.ndim - bias.ndim))
        return gradient.sum(row_dims, dtype=jnp.float32).astype(bias.dtype)

    return gradient, jax.lax.platform_dependent(gradient, cpu=on_cpu, default=elsewhere)


add_bias.defvjp(lambda x, bias: (x + bias, bias), _sum_of_rows)
