"""Products with weights and sums with biases, as each platform computes them fastest.

I, O the dimensions that a kernel sums over and makes, each may be several   N rows   ... any others
"""

import math
from functools import partial

import jax
import jax.numpy as jnp

from models.layers.ops import apply_linear
from pretrain.distributed.ops.recompute import separate


def _ends(x, contract):
    """Return the last dimensions of x and the first of a kernel."""
    return tuple(range(x.ndim - contract, x.ndim)), tuple(range(contract))


def _wide(a, b, dims):
    return jax.lax.dot_general(a, b, (dims, ((), ())), preferred_element_type=jnp.float32)


def _matrices(x, kernel, contract):
    """Return x as [N, I] and the kernel as [I, O]; both may have more dimensions."""
    I = math.prod(kernel.shape[:contract])
    return x.reshape(-1, I), kernel.reshape(I, -1)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def multiply(x, kernel, contract=1, result=None):
    """Return x [..., I] @ kernel [I, O], as `models.layers.ops.apply_linear`.

    On a CPU three things differ from `jax.lax.dot_general` and its gradient; elsewhere nothing does.
    - A product of bfloat16 is float32 and is rounded afterwards, which takes XLA's CPU compiler half the time (LOG.md). So are gradients,
      of a gradient that is rounded to bfloat16 first.
    - float32 is multiplied as matrices. Rows or kernels of several dimensions are copied into other orders first, which takes a tenth of
      a step of GPT-2. With bfloat16 those copies make the product fast.
    - The kernel's gradient in float32 transposes the smaller of its two factors. JAX transposes the gradient, which takes a fifth of a
      step of BERT-base.
    """

    def on_cpu(x, kernel):
        if x.dtype == jnp.bfloat16:
            return _wide(x, kernel, _ends(x, contract)).astype(result or x.dtype)
        x_NI, kernel_IO = _matrices(x, kernel, contract)
        return apply_linear(x_NI, kernel_IO, 1, result).reshape(
            *x.shape[: x.ndim - contract], *kernel.shape[contract:]
        )

    return jax.lax.platform_dependent(
        x, kernel, cpu=on_cpu, default=partial(apply_linear, contract=contract, result=result)
    )


def _forwards(x, kernel, contract, result):
    return multiply(x, kernel, contract, result), (x, kernel)


def _backwards(contract, result, read, gradient):
    """Return (gradient of x, gradient of the kernel)."""

    def on_cpu(x, kernel, gradient):
        gradient = gradient.astype(x.dtype)
        if x.dtype == jnp.bfloat16:
            rest, made = x.ndim - contract, kernel.ndim - contract
            of_x = _wide(
                gradient,
                kernel,
                (tuple(range(rest, rest + made)), tuple(range(contract, kernel.ndim))),
            )
            # XLA has no product of bfloat16 into float32 for what it makes of the other order (JAX 0.10.2).
            rows = tuple(range(rest))
            return of_x.astype(x.dtype), _wide(x, gradient, (rows, rows)).astype(kernel.dtype)
        x_NI, kernel_IO = _matrices(x, kernel, contract)
        gradient_NO = gradient.reshape(-1, kernel_IO.shape[1])
        of_x = _wide(gradient_NO, kernel_IO, ((1,), (1,)))
        if kernel_IO.shape[0] < kernel_IO.shape[1]:
            of_kernel = _wide(x_NI, gradient_NO, ((0,), (0,)))
        else:
            of_kernel = _wide(gradient_NO, x_NI, ((0,), (0,))).T
        return of_x.astype(x.dtype).reshape(x.shape), of_kernel.astype(kernel.dtype).reshape(
            kernel.shape
        )

    def elsewhere(x, kernel, gradient):
        of_x = jax.linear_transpose(lambda x: apply_linear(x, kernel, contract, result), x)
        of_kernel = jax.linear_transpose(
            lambda kernel: apply_linear(x, kernel, contract, result), kernel
        )
        return *of_x(gradient), *of_kernel(gradient)

    return jax.lax.platform_dependent(*read, gradient, cpu=on_cpu, default=elsewhere)


multiply.defvjp(_forwards, _backwards)


@partial(jax.custom_vjp, nondiff_argnums=(0, 4, 5))
def multiply_activation(act, read, drop, kernel, contract=1, result=None):
    """Return drop(act(*read)) @ kernel, as `models.layers.ops.apply_activation_linear`.

    The backward pass keeps `read` and `kernel` alone, and computes `act` and `drop` again.
    """
    return multiply(_activate(act, drop, *read), kernel, contract, result)


def _activate(act, drop, *read):
    x = act(*read)
    return x if drop is None else drop(x)


def _forwards_of(act, read, drop, kernel, contract, result):
    return multiply_activation(act, read, drop, kernel, contract, result), (read, drop, kernel)


def _backwards_of(act, contract, result, kept, gradient):
    read, drop, kernel = kept
    read, drop, gradient = separate((read, drop, gradient))
    x, pull = jax.vjp(partial(_activate, act, drop), *read)
    of_x, of_kernel = _backwards(contract, result, (x, kernel), gradient)
    return pull(of_x), None, of_kernel


multiply_activation.defvjp(_forwards_of, _backwards_of)


@jax.custom_vjp
def add_bias(x, bias):
    """Return x [..., O] + bias [O], of one type. The bias's gradient is summed in float32.

    On a CPU the gradient of few long rows, such as the scores of all words, is a product with ones: XLA's CPU compiler takes several times
    as long for their sum, and for any sum over rows in bfloat16 (LOG.md).
    """
    return x + bias


def _sum_of_rows(bias, gradient):
    def on_cpu(gradient):
        rows = gradient.reshape(-1, bias.size)
        if len(rows) >= bias.size:
            return elsewhere(gradient)
        return (
            _wide(jnp.ones((1, len(rows)), rows.dtype), rows, ((1,), (0,)))
            .astype(bias.dtype)
            .reshape(bias.shape)
        )

    def elsewhere(gradient):
        return gradient.sum(tuple(range(gradient.ndim - bias.ndim)), dtype=jnp.float32).astype(
            bias.dtype
        )

    return gradient, jax.lax.platform_dependent(gradient, cpu=on_cpu, default=elsewhere)


add_bias.defvjp(lambda x, bias: (x + bias, bias), _sum_of_rows)
