"""The position-wise part of a layer: widen, bend, narrow.

B batch   L length   D width   F mlp width
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn

from models.layers.dropout import Dropout
from models.layers.linear import TRUNCATED, Dense, Init, Part

gelu = partial(nn.gelu, approximate=False)  # x * Phi(x), exactly (Hendrycks and Gimpel 2016)
gelu_tanh = partial(nn.gelu, approximate=True)  # the same paper's tanh approximation


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
