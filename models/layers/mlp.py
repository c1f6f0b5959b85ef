"""The position-wise part of a layer: widen, bend, narrow.

B batch   L length   D width   F mlp width
"""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Init, Part


def recomputed(act):
    """`act`, of whose computation the backward pass keeps x alone and does the rest again; in float32, returned in the type of x.

    JAX would keep what the derivative reads of it, such as the values of an error function: for a BERT several arrays of [B, L, F] a layer.
    """

    def wide(x):
        return act(x.astype(jnp.float32)).astype(x.dtype)

    def backwards(x, gradient):
        x = jax.lax.optimization_barrier(x)  # or XLA finds that it has the values already, and keeps them
        return jax.vjp(wide, x)[1](gradient)

    kept = jax.custom_vjp(wide)
    kept.defvjp(lambda x: (wide(x), x), backwards)
    return kept


@recomputed
def gelu(x):
    """x * Phi(x), exactly (Hendrycks and Gimpel 2016)."""
    return x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))


@recomputed
def gelu_tanh(x):
    """The same paper's approximation by tanh."""
    return nn.gelu(x, approximate=True)


class Mlp(nn.Module):
    """act(x up) down (Vaswani et al. 2017, section 3.3)."""

    width: int
    act: Callable = gelu
    use_bias: bool = True
    kernel_init: Init = TRUNCATED
    down_init: Init | None = None  # `kernel_init` unless given
    dropout: Part = partial(Dropout, 0.0)  # on the widened activations

    @nn.compact
    def __call__(self, x_BLD, train=False):
        dense = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init)
        h_BLF = self.act(dense(self.width, name="up")(x_BLD))
        h_BLF = self.dropout(deterministic=not train)(h_BLF)
        return dense(x_BLD.shape[-1], kernel_init=self.down_init or self.kernel_init, name="down")(h_BLF)


class GatedMlp(nn.Module):
    """(act(x gate) * (x up)) down (Shazeer 2020, section 2)."""

    width: int
    act: Callable = gelu_tanh
    use_bias: bool = True
    kernel_init: Init = TRUNCATED
    dropout: Part = partial(Dropout, 0.0)

    @nn.compact
    def __call__(self, x_BLD, train=False):
        dense = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init)
        h_BLF = self.act(dense(self.width, name="gate")(x_BLD)) * dense(self.width, name="up")(x_BLD)
        h_BLF = self.dropout(deterministic=not train)(h_BLF)
        return dense(x_BLD.shape[-1], name="down")(h_BLF)
