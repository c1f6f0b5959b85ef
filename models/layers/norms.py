"""Norms over the last dimension, computed in float32 and returned in the dtype of the input.

B batch   L length   D width
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.ops import PLAIN, Ops


def apply_layer_norm(
    x_BLD: jax.Array, scale_D: jax.Array, bias_D: jax.Array | None = None, *, epsilon: float
) -> jax.Array:
    """Return (x - mean) / sqrt(variance + epsilon) * scale + bias; None: no bias."""
    x = x_BLD.astype(jnp.float32)
    x -= x.mean(-1, keepdims=True)  # before squaring: E[x^2] - E[x]^2 would cancel
    x *= jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    x *= scale_D.astype(jnp.float32)
    if bias_D is not None:
        x += bias_D.astype(jnp.float32)
    return x.astype(x_BLD.dtype)


def apply_rms_norm(
    x_BLD: jax.Array, scale_D: jax.Array, epsilon: float, offset: float = 0.0
) -> jax.Array:
    """Return x / sqrt(mean(x^2) + epsilon) * (offset + scale)."""
    x = x_BLD.astype(jnp.float32)
    x *= jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    scale_D = scale_D.astype(jnp.float32)
    return (x * (offset + scale_D if offset else scale_D)).astype(x_BLD.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias (Ba et al. 2016, section 3.1)."""

    epsilon: float = 1e-6
    ops: Ops = PLAIN
    use_bias: bool = True

    @nn.compact
    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Return x normalised over its last dimension."""
        scale_D = self.param("scale", nn.initializers.ones, x_BLD.shape[-1:])
        norm = self.ops.recompute(partial(apply_layer_norm, epsilon=self.epsilon))
        if not self.use_bias:
            return norm(x_BLD, scale_D)
        bias_D = self.param("bias", nn.initializers.zeros, x_BLD.shape[-1:])
        return norm(x_BLD, scale_D, bias_D)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * scale, no mean, no bias (Zhang and Sennrich 2019, sec. 4).

    offset: added to the scale, which begins at 1 - offset; Gemma's is 1.
    """

    epsilon: float = 1e-6
    ops: Ops = PLAIN
    offset: float = 0.0

    @nn.compact
    def __call__(self, x_BLD: jax.Array) -> jax.Array:
        """Return x normalised over its last dimension."""
        initial = nn.initializers.constant(1 - self.offset)
        scale_D = self.param("scale", initial, x_BLD.shape[-1:])
        norm = partial(apply_rms_norm, epsilon=self.epsilon, offset=self.offset)
        return self.ops.recompute(norm)(x_BLD, scale_D)
