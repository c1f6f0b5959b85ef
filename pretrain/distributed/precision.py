"""The one place where parameters change their type."""

import jax


def cast_params(params, compute_dtype):
    """Return the parameters in the compute type. Gradients flow back in float32."""
    return jax.tree.map(lambda leaf: leaf.astype(compute_dtype), params)
