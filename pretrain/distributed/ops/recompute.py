"""What the backward pass computes again, because it costs less to compute than to keep.

B batch   L length   F mlp width
"""

import flax.linen as nn
import jax


def separate(kept):
    """Return what was kept as new values, or XLA would find that it computed the same before, and keep that instead.

    kept: a pytree that includes the incoming gradient, so that XLA waits for it. On a CPU this needs an option of
    pretrain/distributed/xla_options.py.
    """
    return jax.lax.optimization_barrier(kept)


def recompute(function):
    """Return `function`, of which the backward pass keeps the arguments alone and computes the rest again.

    JAX would keep what each derivative reads, such as the values of an error function: for a BERT several arrays [B, L, F] a layer.
    The derivative of `relu` reads its sign, which is kept anyway: it is returned as it is.
    """
    if function is nn.relu:
        return function

    def backwards(arguments, gradient):
        arguments, gradient = separate((arguments, gradient))
        return jax.vjp(function, *arguments)[1](gradient)

    recomputed = jax.custom_vjp(function)
    recomputed.defvjp(lambda *arguments: (function(*arguments), arguments), backwards)
    return recomputed
