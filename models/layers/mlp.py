"""The position-wise part of a layer: widen, bend, narrow.

B batch   L length   D width   F mlp width
"""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax

from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Init, Part
from models.layers.recompute import recomputed, widened


@recomputed
@widened
def gelu(x):
    """x * Phi(x), exactly (Hendrycks and Gimpel 2016)."""
    return x * (0.5 + 0.5 * jax.lax.erf(x * math.sqrt(0.5)))


@recomputed
@widened
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
        h_BLF = dense(self.width, name="up")(x_BLD)
        drop = self.dropout(deterministic=not train).draw()
        return dense(x_BLD.shape[-1], kernel_init=self.down_init or self.kernel_init, name="down")(
            h_BLF, act=self.act, drop=drop
        )


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
        gate_BLF, h_BLF = (dense(self.width, name=name)(x_BLD) for name in ("gate", "up"))
        drop, act = self.dropout(deterministic=not train).draw(), self.act
        return dense(x_BLD.shape[-1], name="down")(
            gate_BLF, h_BLF, act=lambda gate, h: act(gate) * h, drop=drop
        )
