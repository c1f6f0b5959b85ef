"""The one place that casts parameters."""

from typing import Any

import jax


def cast_params(params: Any, compute_dtype: str) -> Any:
    """Return the parameters in the compute dtype. Their gradients are float32 again."""
    return jax.tree.map(lambda leaf: leaf.astype(compute_dtype), params)
