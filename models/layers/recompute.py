"""What is kept from the way forth for the way back, and what is done again: for what costs less to compute than to keep.

B batch   L length   F mlp width
"""

import jax
import jax.numpy as jnp


def apart(kept):
    """What was kept, as if it were new: or XLA finds that it has made the same of it before, and keeps that instead.

    kept: a pytree with the incoming gradient in it, which is what makes XLA wait for it. A CPU's compiler heeds this by an option of pretrain/distributed/xla_options.py.
    """
    return jax.lax.optimization_barrier(kept)


def recomputed(function):
    """`function`, of whose computation the backward pass keeps the arguments alone, and does the rest again.

    JAX would keep what each derivative reads, such as the values of an error function: for a BERT several arrays of [B, L, F] a layer.
    """

    def backwards(arguments, gradient):
        arguments, gradient = apart((arguments, gradient))
        return jax.vjp(function, *arguments)[1](gradient)

    kept = jax.custom_vjp(function)
    kept.defvjp(lambda *arguments: (function(*arguments), arguments), backwards)
    return kept


def widened(act):
    """`act` in float32, returned in the type of x."""
    return lambda x: act(x.astype(jnp.float32)).astype(x.dtype)
