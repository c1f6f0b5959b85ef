"""Products of what a layer reads with its weights, and sums with its biases, in the way that a platform does fastest.

I, O the dimensions that a kernel sums over and makes, each may be several   N rows   ... any others
"""

import math
from functools import partial

import jax
import jax.numpy as jnp

from models.layers.recompute import apart


def _plain(x, kernel, contract, result):
    return jax.lax.dot_general(
        x, kernel, (_ends(x, contract), ((), ())), preferred_element_type=result
    )


def _ends(x, contract):
    """The last dimensions of x and the first of a kernel."""
    return tuple(range(x.ndim - contract, x.ndim)), tuple(range(contract))


def _wide(a, b, dims):
    return jax.lax.dot_general(a, b, (dims, ((), ())), preferred_element_type=jnp.float32)


def _matrices(x, kernel, contract):
    """x [N, I] and the kernel [I, O], of what may have more dimensions."""
    I = math.prod(kernel.shape[:contract])
    return x.reshape(-1, I), kernel.reshape(I, -1)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def product(x, kernel, contract=1, result=None):
    """x [..., I] times kernel [I, O] -> [..., O]; contract: how many dimensions I are; result: the type, that of x unless given.

    XLA's CPU compiler multiplies bfloat16 in half the time where the product is float32 (LOG.md). So it is, there, and is rounded afterwards;
    gradients likewise, of a gradient that is rounded to bfloat16 first. Of float32 it is given matrices: where rows or a kernel have
    several dimensions it copies them into other orders first, a tenth of a step of GPT-2; of bfloat16 those copies are what it is fast with.
    And of the two that make the kernel's gradient in float32 it is the smaller that is transposed: JAX's own takes the gradient, whose
    transpose was a fifth of a step of BERT-base. Everywhere else this is `jax.lax.dot_general` and its own gradient.
    """

    def on_cpu(x, kernel):
        if x.dtype == jnp.bfloat16:
            return _wide(x, kernel, _ends(x, contract)).astype(result or x.dtype)
        x_NI, kernel_IO = _matrices(x, kernel, contract)
        return _plain(x_NI, kernel_IO, 1, result).reshape(
            *x.shape[: x.ndim - contract], *kernel.shape[contract:]
        )

    return jax.lax.platform_dependent(
        x, kernel, cpu=on_cpu, default=partial(_plain, contract=contract, result=result)
    )


def _forwards(x, kernel, contract, result):
    return product(x, kernel, contract, result), (x, kernel)


def _backwards(contract, result, read, gradient):
    """(gradient of x, of the kernel)."""

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
        of_x = jax.linear_transpose(lambda x: _plain(x, kernel, contract, result), x)
        of_kernel = jax.linear_transpose(lambda kernel: _plain(x, kernel, contract, result), kernel)
        return *of_x(gradient), *of_kernel(gradient)

    return jax.lax.platform_dependent(*read, gradient, cpu=on_cpu, default=elsewhere)


product.defvjp(_forwards, _backwards)


@partial(jax.custom_vjp, nondiff_argnums=(0, 4, 5))
def product_of(act, read, drop, kernel, contract=1, result=None):
    """product(drop(act(*read)), kernel), of which the way back keeps what is read, a tuple of [..., I], and does `act` and `drop` again.

    drop: a `models.layers.dropout.Drop`, or None.
    """
    return product(_made(act, drop, *read), kernel, contract, result)


def _made(act, drop, *read):
    x = act(*read)
    return x if drop is None else drop(x)


def _forwards_of(act, read, drop, kernel, contract, result):
    return product_of(act, read, drop, kernel, contract, result), (read, drop, kernel)


def _backwards_of(act, contract, result, kept, gradient):
    read, drop, kernel = kept
    read, drop, gradient = apart((read, drop, gradient))
    x, pull = jax.vjp(partial(_made, act, drop), *read)
    of_x, of_kernel = _backwards(contract, result, (x, kernel), gradient)
    return pull(of_x), None, of_kernel


product_of.defvjp(_forwards_of, _backwards_of)


@jax.custom_vjp
def shift(x, bias):
    """x [..., O] + bias [O], of one type; the bias's gradient is summed in float32.

    XLA's CPU compiler takes several times as long for a sum over rows in bfloat16, and for one over a few long rows, such as the scores of
    all words, than for a product with ones (LOG.md).
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


shift.defvjp(lambda x, bias: (x + bias, bias), _sum_of_rows)
