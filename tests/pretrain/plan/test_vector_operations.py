"""Elementwise operations of compiled programs, against counts by hand."""

import jax
import jax.numpy as jnp
import pytest

from pretrain.plan.hlo import HloModule
from pretrain.plan.work import count_vector_operations

N = 4096


def count_compiled(function, *arrays):
    return count_vector_operations(HloModule(jax.jit(function).lower(*arrays).compile().as_text()))


@pytest.mark.parametrize(
    ("function", "operations"),
    [
        (lambda x: jnp.exp(x * 2 + x), 3),
        (lambda x: jnp.maximum(x, 0) - jnp.where(x > 1, x, 0), 4),
        (lambda x: x.astype(jnp.bfloat16), 0),
        (lambda x: jnp.concatenate([x, x]).reshape(2, N), 0),
        (lambda x: (x * x).sum(), 2),
        (lambda x: jax.lax.scan(lambda x, _: (x * x + 1, None), x, length=7)[0], 14),
    ],
)
def test_operations_of_a_program_are_those_counted_by_hand(function, operations):
    """A loop's counter and the rounds of a reduction are below a hundredth."""
    counted = count_compiled(function, jnp.ones(N))
    assert operations * N <= counted <= (operations + 0.01) * N


def test_a_matmul_has_none():
    assert count_compiled(lambda x: x @ x, jnp.ones((64, 64))) == 0
