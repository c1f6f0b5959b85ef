"""Rematerialisation: the backward pass recomputes what costs less to compute than to save.

B batch   L length   F mlp width
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax


def prevent_cse(residuals: Any) -> Any:
    """Return residuals as new values, to prevent common subexpression elimination.

    Otherwise XLA would find that the forward pass has computed the same, and save that result.

    residuals: a pytree that includes the incoming gradient, so that XLA waits for it. On a CPU this
      needs an option of pretrain/mesh/xla_options.py.
    """
    return jax.lax.optimization_barrier(residuals)


def recompute_in_backward(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return `function` with a backward pass that saves only the arguments.

    JAX would save what each derivative reads, such as the values of an error function: several
    arrays [B, L, F] per layer of a BERT. `relu` is returned unchanged, since its derivative reads
    only its sign, which is saved anyway.
    """
    if function is nn.relu:
        return function

    def recompute_bwd(arguments: tuple[Any, ...], gradient: jax.Array) -> tuple[Any, ...]:
        arguments, gradient = prevent_cse((arguments, gradient))
        return jax.vjp(function, *arguments)[1](gradient)

    recomputed = jax.custom_vjp(function)
    recomputed.defvjp(lambda *arguments: (function(*arguments), arguments), recompute_bwd)
    return recomputed
