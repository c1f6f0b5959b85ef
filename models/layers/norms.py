"""Norms over the last dimension, computed in float32 and returned in the type of the input. The way back keeps what is normed alone.

B batch   L length   D width
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.recompute import recomputed


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias (Ba et al. 2016, section 3.1)."""

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x_BLD):
        scale_D = self.param("scale", nn.initializers.ones, x_BLD.shape[-1:])
        bias_D = self.param("bias", nn.initializers.zeros, x_BLD.shape[-1:])

        epsilon = self.epsilon  # not `self`, which would live as long as what is compiled

        @recomputed
        def norm(x_BLD, scale_D, bias_D):
            x = x_BLD.astype(jnp.float32)
            x -= x.mean(-1, keepdims=True)  # before squaring: E[x^2] - E[x]^2 would cancel
            x *= jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
            return (x * scale_D.astype(jnp.float32) + bias_D.astype(jnp.float32)).astype(
                x_BLD.dtype
            )

        return norm(x_BLD, scale_D, bias_D)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + epsilon) * scale: no mean, no bias (Zhang and Sennrich 2019, section 3)."""

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x_BLD):
        scale_D = self.param("scale", nn.initializers.ones, x_BLD.shape[-1:])

        epsilon = self.epsilon

        @recomputed
        def norm(x_BLD, scale_D):
            x = x_BLD.astype(jnp.float32)
            x *= jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
            return (x * scale_D.astype(jnp.float32)).astype(x_BLD.dtype)

        return norm(x_BLD, scale_D)
