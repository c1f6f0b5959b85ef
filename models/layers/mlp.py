"""Position-wise feed-forward networks (Vaswani et al. 2017, section 3.3) and their activations.

B batch   L length   D width   F hidden width
"""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Initializer, ModuleFactory
from models.layers.ops import PLAIN, Ops


def gelu(x: jax.Array) -> jax.Array:
    """Return x * Phi(x), exactly (Hendrycks and Gimpel 2016, section 2), computed in float32."""
    in_float32 = x.astype(jnp.float32)
    return (in_float32 * (0.5 + 0.5 * jax.lax.erf(in_float32 * math.sqrt(0.5)))).astype(x.dtype)


def gelu_tanh(x: jax.Array) -> jax.Array:
    """Return the same paper's approximation of `gelu` by tanh, computed in float32."""
    return nn.gelu(x.astype(jnp.float32), approximate=True).astype(x.dtype)


# The keys are the values of `activation` in configurations.
ACTIVATIONS = {"gelu": gelu, "relu": nn.relu, "tanh": nn.tanh}


class Mlp(nn.Module):
    """activation(x W_up) W_down (Vaswani et al. 2017, section 3.3).

    width: F.
    dropout: of the hidden activations.
    """

    width: int
    activation: Callable[[jax.Array], jax.Array] = gelu
    use_bias: bool = True
    kernel_init: Initializer = TRUNCATED
    down_init: Initializer | None = None  # `kernel_init` by default
    dropout: ModuleFactory = partial(Dropout, 0.0)
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, train: bool = False) -> jax.Array:
        """Return activations [B, L, D]; train: whether dropout is applied."""
        dense = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init, ops=self.ops)
        hidden_BLF = dense(self.width, name="up")(x_BLD)
        drop = self.dropout(deterministic=not train).bind_key()
        down = dense(x_BLD.shape[-1], kernel_init=self.down_init or self.kernel_init, name="down")
        return down(hidden_BLF, activation=self.ops.recompute(self.activation), drop=drop)


class GatedMlp(nn.Module):
    """(activation(x W_gate) * x W_up) W_down (Shazeer 2020, section 2).

    width: F.
    dropout: of the hidden activations.
    """

    width: int
    activation: Callable[[jax.Array], jax.Array] = gelu_tanh
    use_bias: bool = True
    kernel_init: Initializer = TRUNCATED
    down_init: Initializer | None = None  # `kernel_init` by default
    dropout: ModuleFactory = partial(Dropout, 0.0)
    ops: Ops = PLAIN

    @nn.compact
    def __call__(self, x_BLD: jax.Array, train: bool = False) -> jax.Array:
        """Return activations [B, L, D]; train: whether dropout is applied."""
        dense = partial(Dense, use_bias=self.use_bias, kernel_init=self.kernel_init, ops=self.ops)
        gate_BLF, hidden_BLF = (dense(self.width, name=name)(x_BLD) for name in ("gate", "up"))
        drop = self.dropout(deterministic=not train).bind_key()
        act = self.ops.recompute(self.activation)
        down = dense(x_BLD.shape[-1], kernel_init=self.down_init or self.kernel_init, name="down")
        return down(
            gate_BLF, hidden_BLF, activation=lambda gate, hidden: act(gate) * hidden, drop=drop
        )
