"""One layer, as a residual equation. A new equation is a new class.

`mask` and `bias` are for the attention of x to itself, `memory_mask` for that to `memory`, as `models.layers.attention.attend` takes them.

B batch   L length   M length of the memory   D width
"""

from functools import partial

import flax.linen as nn

from models.layers.dropout import Dropout
from models.layers.linear import Part
from models.layers.norms import LayerNorm


class PostNormLayer(nn.Module):
    """x = norm(x + f(x)): the Transformer (Vaswani et al. 2017) and BERT. With `cross`, a decoder's layer, which also reads `memory`."""

    attention: Part
    mlp: Part
    cross: Part | None = None
    norm: Part = LayerNorm
    dropout: Part = partial(Dropout, 0.0)  # on what each part adds

    @nn.compact
    def __call__(self, x_BLD, train, mask=None, bias=None, memory_BMD=None, memory_mask=None):
        drop = self.dropout(deterministic=not train)
        x = x_BLD
        x = self.norm(name="attention_norm")(
            x + drop(self.attention(name="attention")(x, train=train, mask=mask, bias=bias))
        )
        if self.cross is not None:
            y = self.cross(name="cross")(x, memory_BMD, train=train, mask=memory_mask)
            x = self.norm(name="cross_norm")(x + drop(y))
        x = self.norm(name="mlp_norm")(x + drop(self.mlp(name="mlp")(x, train)))
        return x


class PreNormLayer(nn.Module):
    """x = x + f(norm(x)): GPT-2 and T5. With `cross`, a decoder's layer, which also reads `memory`."""

    attention: Part
    mlp: Part
    cross: Part | None = None
    norm: Part = LayerNorm
    dropout: Part = partial(Dropout, 0.0)

    @nn.compact
    def __call__(self, x_BLD, train, mask=None, bias=None, memory_BMD=None, memory_mask=None):
        drop = self.dropout(deterministic=not train)
        x = x_BLD
        y = self.norm(name="attention_norm")(x)
        x = x + drop(self.attention(name="attention")(y, train=train, mask=mask, bias=bias))
        if self.cross is not None:
            y = self.norm(name="cross_norm")(x)
            x = x + drop(self.cross(name="cross")(y, memory_BMD, train=train, mask=memory_mask))
        y = self.norm(name="mlp_norm")(x)
        return x + drop(self.mlp(name="mlp")(y, train))
