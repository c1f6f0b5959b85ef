"""LoRA (Hu et al. 2021, section 4.1): the kernel W computes as W + scale * A B, of low rank.

The factors stand in the tree of parameters beside W: A as `lora_a`, B as `lora_b`. Kernels that
read the same x as one fused matrix share the `lora_a` of the module around them. The paper writes
B A for matrices that multiply x from the left; ours multiply it from the right.

I... axes of the input   r rank   O... axes of the output
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

LORA_A, LORA_B = "lora_a", "lora_b"


def draw_factor(key: jax.Array, in_shape: Sequence[int], rank: int) -> jax.Array:
    """Return a random A [I..., r], uniform with the variance of a linear layer in PyTorch.

    B begins with zeros, so the model begins as it was.
    """
    bound = 1 / math.sqrt(math.prod(in_shape))
    return jax.random.uniform(key, (*in_shape, rank), jnp.float32, -bound, bound)


def merge_factors(params: Any, scale: float) -> Any:
    """Return the parameters with scale * A B added to each kernel with factors, without these.

    Works under `jax.jit`, and is differentiable.
    """
    return _merge(params, scale, None, is_stacked=False)


def _merge(tree: Any, scale: float, outer_a: Any, is_stacked: bool) -> Any:
    """Return a part of the parameters. outer_a: the A of the module around it, or None."""
    if not isinstance(tree, Mapping):
        return tree
    merged = {
        name: _merge(part, scale, tree.get(LORA_A), is_stacked or name == "layers")
        for name, part in tree.items()
        if name not in (LORA_A, LORA_B)
    }
    if LORA_B in tree:
        a, b = tree.get(LORA_A, outer_a), tree[LORA_B]
        multiply = jax.vmap(_multiply) if is_stacked else _multiply
        merged["kernel"] = tree["kernel"] + scale * multiply(a, b)
    return merged


def _multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return A [I..., r] times B [r, O...]."""
    return jnp.tensordot(a, b, 1, precision=jax.lax.Precision.HIGHEST)
